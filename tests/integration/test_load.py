"""What tests wait with for replicas to be in sync: it looks at few topics, and says so only of all."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from tests.integration import load


def _view(topics: Iterable[str], lacking: Iterable[str]) -> Any:
    states = {
        TopicPartition(topic, 0): SimpleNamespace(
            leader_and_isr=SimpleNamespace(leader=1, isr=(1,) if topic in lacking else (1, 2))
        )
        for topic in topics
    }
    return SimpleNamespace(topics={topic: SimpleNamespace(assignment={0: (1, 2)}) for topic in topics}, states=states)


@pytest.mark.parametrize("wanted", [None, ["a", "b", "c"]])
def test_what_lacks_something_is_looked_at_until_it_does_not_and_then_all_once_more(
    monkeypatch: pytest.MonkeyPatch, wanted: list[str] | None
) -> None:
    lacking = iter([["a", "b"], ["b"], [], ["c"], [], []])
    looked_at: list[list[str] | None] = []

    def read_cluster(_: object, topics: list[str] | None) -> Any:
        looked_at.append(topics)
        return _view(topics if topics is not None else ["a", "b", "c"], next(lacking))

    monkeypatch.setattr(load, "read_cluster", read_cluster)
    load.await_in_sync(None, wanted)  # type: ignore[arg-type]
    assert looked_at == [wanted, ["a", "b"], ["b"], wanted, ["c"], wanted]
