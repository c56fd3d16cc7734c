"""The workload's own parts: keys that retire, values that travel, operations told as they were done."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.analyser.notation import HEADER
from tests.histories.analyser.verdict import judge
from tests.histories.clients import values
from tests.histories.clients.client import Cell, Ended, Runs
from tests.histories.history import OK, Operation, read_file
from tests.histories.workload import COMMIT, Keys, Worker
from tests.histories.writer import HistoryWriter


@pytest.mark.spec("HIS-41", "HIS-13")
@given(
    key=st.integers(0, 1 << 20),
    value=st.integers(-(1 << 40), 1 << 40),
    process=st.integers(0, 1 << 20),
    index=st.none() | st.integers(0, 1 << 30),
)
def test_a_value_travels_and_nothing_else_is_taken_for_one(
    key: int, value: int, process: int, index: int | None
) -> None:
    assert values.key_of(values.topic_of(key), values.partition_of(key)) == key
    data = values.encode(value, key, process, index)
    assert values.decode(data) == value
    assert values.decode(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert values.decode(b"7" + data) is None
    assert values.decode(data[:3]) is None
    assert values.decode(None) is None
    assert values.decode(b" 0") is None, "the checksum of nothing"


X = 0
POLLED_AND_COMMITTED: list[list[Any]] = [["poll"], ["offsets", None]]


class Played:
    """A client of a group whose coordinator takes every commit; ``polls``: what its next polls tell and deliver."""

    def __init__(self, member: str, clock: Callable[[], int]) -> None:
        self.group, self.member, self.generation = "g", member, 0
        self.events: list[dict[str, Any]] = []
        self.positions: dict[int, int] = {}
        self.began: dict[int, int] = {}
        self.broken = False
        self.polls: list[Callable[[], Runs]] = []
        self.generation_amid_commit: int | None = None
        self._clock = clock

    def assigned(self, generation: int) -> None:
        self.generation = generation
        event = {"what": "assigned", "keys": [X], "generation": generation, "time": self._clock()}
        self.events.append(event)

    def poll(self) -> Runs:
        runs = self.polls.pop(0)()
        self.positions.update({key: pairs[-1][0] + 1 for key, pairs in runs.items()})
        return runs

    def commit(self, _: Mapping[int, int]) -> str:
        self.generation = self.generation_amid_commit or self.generation
        return OK

    def begin(self) -> None:
        """Begin a transaction."""

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        self.commit(offsets)

    def commit_transaction(self) -> Ended:
        return Ended(OK, True, self._clock())


class ByHand(Worker):
    """A worker that does what it is told to, with a played client."""

    def do(self, client: Any, asked: list[list[Any]]) -> None:
        self._client = client
        if self._cell.transactional:
            self._transact(client, asked, COMMIT)
        else:
            self._do(client, asked)


class Members:
    """Two workers of one group that write one history."""

    def __init__(self, writer: HistoryWriter, *, transactional: bool) -> None:
        cell = Cell("subscribe", "transactional" if transactional else "idempotent")
        self.anna, self.bert = Played("anna", writer.now), Played("bert", writer.now)
        self._workers = {
            client.member: ByHand(number, 2, 1, "", cell, Keys(), writer, lambda *_: {})
            for number, client in enumerate((self.anna, self.bert))
        }

    def do(self, client: Played, *polls: Callable[[], Runs], asked: list[list[Any]] = POLLED_AND_COMMITTED) -> None:
        """Have its polls tell and deliver that."""
        client.polls = list(polls)
        self._workers[client.member].do(client, asked)


@contextmanager
def members(directory: Path, *, transactional: bool = False) -> Iterator[Members]:
    with HistoryWriter(directory / "h", HEADER) as writer:
        yield Members(writer, transactional=transactional)


def told(directory: Path) -> list[Operation]:
    return read_file(directory / "h").operations


def kinds(directory: Path) -> set[str]:
    return judge(read_file(directory / "h")).kinds()


@pytest.mark.spec("HIS-11", "HIS-36")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_of_a_replaced_member_that_is_taken_is_found(tmp_path: Path, transactional: bool) -> None:
    with members(tmp_path, transactional=transactional) as group:
        group.anna.assigned(4)
        group.do(group.anna, lambda: {X: [(0, 1)]})
        group.bert.assigned(5)
        group.do(group.bert, dict)
        assert "zombie-commit" not in kinds(tmp_path)
        group.do(group.anna, lambda: {X: [(1, 2)]})
    assert [operation.generation for operation in told(tmp_path)] == [4, None, 4]
    assert "zombie-commit" in kinds(tmp_path)


@pytest.mark.spec("HIS-11", "HIS-36")
def test_a_commit_amid_which_the_generation_changes_is_of_none_that_is_known(tmp_path: Path) -> None:
    with members(tmp_path) as group:
        group.anna.assigned(4)
        group.do(group.anna, lambda: {X: [(0, 1)]})
        group.bert.assigned(5)
        group.do(group.bert, dict)
        group.anna.generation_amid_commit = 6
        group.do(group.anna, lambda: {X: [(1, 2)]})
    assert [operation.generation for operation in told(tmp_path)] == [4, None, None]
    assert "zombie-commit" not in kinds(tmp_path)


@pytest.mark.spec("HIS-11", "HIS-36")
def test_a_commit_behind_a_rebalance_of_its_operation_is_of_the_new_generation(tmp_path: Path) -> None:
    with members(tmp_path) as group:
        group.anna.assigned(4)
        group.do(group.anna, lambda: {X: [(0, 1)]})
        group.bert.assigned(5)
        group.do(group.bert, dict)

        def moves_on() -> Runs:
            group.anna.assigned(6)
            return {X: [(2, 3)]}

        group.do(group.anna, dict, moves_on, asked=POLLED_AND_COMMITTED * 2)
    assert told(tmp_path)[-1].generation == 6
    assert "zombie-commit" not in kinds(tmp_path)


@pytest.mark.spec("HIS-11", "HIS-37")
def test_a_rebalance_is_told_with_the_poll_that_heard_of_it(tmp_path: Path) -> None:
    """So a resume below what was committed is found though the operation had polled the key before."""
    with members(tmp_path) as group:
        group.anna.assigned(4)
        group.do(group.anna, lambda: {X: [(0, 1), (1, 2)]})
        group.do(group.anna, lambda: {X: [(2, 3)]})

        def begins_anew() -> Runs:
            group.anna.assigned(5)
            return {X: [(1, 2)]}

        group.do(group.anna, lambda: {X: [(3, 4)]}, begins_anew, asked=[["poll"], ["poll"]])
    assert [[event.part for event in operation.rebalance] for operation in told(tmp_path)] == [[0], [], [1]]
    assert "commit-lost" in kinds(tmp_path)
