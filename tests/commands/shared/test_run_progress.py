"""The line of progress of a reassignment, and the thread that asks for it."""

import threading

import pytest

from kafkatool.commands.shared.run_progress import RunProgressLine
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.copy_progress import CopyWatch, Replica, ToCopy
from kafkatool.core.operations.reassignment.events import Following


@pytest.mark.spec("RSN-33X")
def test_an_interruption_while_the_asking_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = CopyWatch.__enter__
    before = set(threading.enumerate())
    begun: list[threading.Thread] = []

    def interrupted(watch: CopyWatch) -> CopyWatch:
        begin(watch)
        begun.extend(set(threading.enumerate()) - before)
        raise KeyboardInterrupt

    monkeypatch.setattr(CopyWatch, "__enter__", interrupted)
    line = RunProgressLine(lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        line.begin(Following(ToCopy(frozenset({Replica(TopicPartition("t", 0), 1)}), {})))
    line.end()
    assert begun
    for thread in begun:
        thread.join(60)
        assert not thread.is_alive()
