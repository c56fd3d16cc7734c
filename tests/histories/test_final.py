"""The last phase, with played brokers: what it says of a key is so when it says it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING

from tests.histories import final
from tests.histories.analyser.notation import HEADER
from tests.histories.analyser.verdict import TOO_LITTLE, judge
from tests.histories.clients import facts
from tests.histories.clients.client import Cell
from tests.histories.clients.values import encode, partition_of, topic_of
from tests.histories.history import OK, History, read_file
from tests.histories.writer import HistoryWriter

X, Y = 0, 1


class Played:
    """Logs whose ends are told in a row, the last one ever after; a reader gets to each end that it may get to.

    ``found``: the keys that the first readers get anything of, each in its turn.
    """

    def __init__(
        self,
        *ends: dict[int, int],
        readable: dict[int, int] | None = None,
        found: Sequence[Sequence[int]] = (),
    ) -> None:
        self._ends, self._readable, self._found = list(ends), readable or {}, list(found)
        self.now = 0.0
        self.readers: list[tuple[int, list[int]]] = []

    def ask_ends(self, _: str, keys: Sequence[int]) -> dict[int, tuple[int, int]]:
        self.now += 1
        told = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        return {key: (0, told[key]) for key in keys}

    def read_batches(self, _: str, keys: Sequence[int], ends: dict[int, tuple[int, int]]) -> dict[int, Any]:
        """Tell each key's log as one batch; the last end told has to be known before."""
        return {key: [[0, ends[key][1] - 1, 7, 0, 0, False, False]] for key in keys}

    def read(self, *arguments: Any) -> dict[int, int]:
        self.now += 10
        _, _, _, process, keys, ends, _ = arguments
        self.readers.append((process, keys))
        found = self._found.pop(0) if self._found else keys
        return {key: min(end, self._readable.get(key, end)) for key, end in ends.items() if key in found}


def judged(
    played: Played,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[str], Any] | None = None,
) -> History:
    """Read what was sent, one value to each key, as the last phase does."""
    monkeypatch.setattr(facts, "ask_ends", played.ask_ends)
    monkeypatch.setattr(facts, "ask_committed", lambda *_: told("committed") if told else {})
    monkeypatch.setattr(facts, "read_batches", played.read_batches if told is None else lambda *_: told("batches"))
    monkeypatch.setattr(final, "_read", played.read)
    monkeypatch.setattr(final, "time", SimpleNamespace(monotonic=lambda: played.now))
    with HistoryWriter(directory / "h", HEADER) as writer:
        for key in (X, Y):
            writer.write(key, "invoke", "send", [["send", key, key]])
            writer.write(key, OK, "send", [["send", key, [0, key], OK]])
            writer.write(key, "invoke", "poll", [["poll"]])
            writer.write(key, OK, "poll", [["poll", {key: [[0, key]]}]])
        final.read_everything("", Cell("assign", "transactional"), writer, [X, Y], ["g"])
    return read_file(directory / "h")


@pytest.mark.spec("HIS-43", "HIS-27")
def test_a_marker_that_comes_when_all_was_read_makes_no_key_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a transaction whose time is up, in a partition that it had and never wrote to."""
    history = judged(Played({X: 1, Y: 1}, {X: 1, Y: 1}, {X: 1, Y: 2}), tmp_path, monkeypatch)
    assert not judge(history).kinds()
    finals = [operation.value for operation in history.operations if operation.f == "final"]
    assert finals == [{X: 1, Y: 1}, {Y: 2}]


@pytest.mark.spec("HIS-43", "HIS-27")
def test_a_key_that_cannot_be_read_to_its_end_is_stuck_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played({X: 1, Y: 2}, readable={Y: 1})
    history = judged(played, tmp_path, monkeypatch)
    assert judge(history).kinds() == {"stuck"}
    told = [operation.f for operation in history.operations if operation.f in ("ends", "final", "committed", "batches")]
    assert told[-4:] == ["final", "committed", "ends", "batches"]


@pytest.mark.spec("HIS-43", "HIS-27")
def test_what_was_read_at_once_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = judged(Played({X: 1, Y: 1}), tmp_path, monkeypatch)
    assert not judge(history).kinds()
    told = [operation.f for operation in history.operations if operation.f not in ("send", "poll")]
    assert told == ["ends", "ends", "final", "committed", "ends", "batches"]


@pytest.mark.spec("HIS-43", "HIS-20")
@pytest.mark.parametrize("readable", [None, {Y: 0}])
def test_every_last_phase_ends_with_the_batches_of_all_keys_to_their_ends(
    readable: dict[int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be all of it read or not: they tell whose fault a duplicate is."""
    history = judged(Played({X: 1, Y: 1}, {X: 4, Y: 2}, readable=readable), tmp_path, monkeypatch)
    last = history.operations[-1]
    assert (last.f, last.type) == ("batches", OK)
    assert {key: [batch[:2] for batch in batches] for key, batches in last.value.items()} == {X: [[0, 3]], Y: [[0, 1]]}


def told_by(history: History, f: str) -> list[tuple[object, Any]]:
    return [(operation.process, operation.value) for operation in history.operations if operation.f == f]


@pytest.mark.spec("HIS-43", "HIS-30")
def test_each_reader_says_how_far_it_came_in_the_keys_that_nobody_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a compacted key the newest values have to be among what the process polled that says so."""
    played = Played({X: 1, Y: 1}, found=[[X], [Y]])
    history = judged(played, tmp_path, monkeypatch)
    (first, all_keys), (second, left) = played.readers
    assert (all_keys, left) == ([X, Y], [Y])
    assert told_by(history, "final") == [(first, {X: 1}), (second, {Y: 1})]
    assert first != second and min(first, second) > 100_000, "clients of their own, that nobody used before"


@pytest.mark.spec("HIS-43", "HIS-4")
def test_a_run_of_which_nothing_could_be_read_at_the_end_is_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played({X: 1, Y: 1}, found=[[]] * 100)
    history = judged(played, tmp_path, monkeypatch)
    assert len(played.readers) > 10, "again and again until the time is up"
    verdict = judge(history)
    assert verdict.exit_code == TOO_LITTLE and verdict.too_little == "keys 0, 1 were not read to their ends"


@pytest.mark.spec("HIS-43")
def test_a_reader_that_gets_no_further_is_given_up_and_another_begins_anew_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a consumer that is played: it is given nothing of one key, and each of its calls takes a second."""
    now, consumers = [0.0], []
    start = [(topic_of(key), partition_of(key), OFFSET_BEGINNING) for key in (X, Y)]

    class Still:
        def __init__(self, options: dict[str, Any]) -> None:
            self.options, self.given = options, False
            self.assigned: list[tuple[str, int, int]] = []
            consumers.append(self)

        def assign(self, partitions: list[Any]) -> None:
            self.assigned = [(p.topic, p.partition, p.offset) for p in partitions]

        def consume(self, *_: Any) -> list[Any]:
            now[0] += 1
            has_more = start[0] in self.assigned and not self.given
            self.given = True
            return [Message(0)] if has_more else []

        def close(self) -> None:
            """Leave."""

    class Message(NamedTuple):
        at: int

        def error(self) -> None:
            return None

        def topic(self) -> str:
            return topic_of(X)

        def partition(self) -> int:
            return partition_of(X)

        def offset(self) -> int:
            return self.at

        def value(self) -> bytes:
            return encode(1, X, 0)

        def headers(self) -> None:
            return None

    monkeypatch.setattr(facts, "ask_ends", lambda *_: {X: (0, 1), Y: (0, 1)})
    monkeypatch.setattr(facts, "ask_committed", lambda *_: {})
    monkeypatch.setattr(facts, "read_batches", lambda *_: {})
    monkeypatch.setattr(final, "Consumer", Still)
    monkeypatch.setattr(final, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        final.read_everything("", Cell("assign", "plain", "read_uncommitted"), writer, [X, Y], [])
    history = read_file(tmp_path / "h")
    assert now[0] == 180
    assert len(consumers) == 18, "the first gives up 10 s after what it was given, the others after 10 s or at the end"
    assert consumers[0].assigned == start
    assert all(consumer.assigned == start[1:] for consumer in consumers[1:]), "what is left"
    assert {consumer.options["isolation.level"] for consumer in consumers} == {"read_uncommitted"}
    assigned = [operation for operation in history.operations if operation.f == "assign"]
    assert len({operation.process for operation in assigned}) == len(consumers)
    assert all(operation.from_start for operation in assigned)
    assert told_by(history, "final") == [(assigned[0].process, {X: 1})]
