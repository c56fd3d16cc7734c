"""What workers do is a function of the seed and of completions, in the shares they should: on a cluster that is played."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.histories.clients.client import Cell, Ended, Runs
from tests.histories.crew import PROCESSES
from tests.histories.history import FAIL, INFO, OK, Process
from tests.histories.workload import (
    ACTIVE,
    OUTPUTS,
    VALUES_A_COMPACTED_KEY,
    VALUES_A_KEY,
    Keys,
    Worker,
    draw_place,
    groups_of,
)

_SIGMAS = 5
_LINES = 20_000


class Lines:
    """A history in memory; full at so many lines."""

    def __init__(self, stop: threading.Event, most: int) -> None:
        self.lines: list[tuple[Process, str, str, Any, dict[str, Any]]] = []
        self._stop, self._most = stop, most

    def write(self, process: Process, kind: str, f: str, value: Any = None, **more: Any) -> int:
        self.lines.append((process, kind, f, value, more))
        if len(self.lines) >= self._most:
            self._stop.set()
        return len(self.lines) - 1

    def now(self) -> int:
        return len(self.lines)

    def ended(self, f: str | None = None) -> list[tuple[str, Any, dict[str, Any]]]:
        """Return type, value and more of the operations that ended."""
        return [
            (kind, value, more) for _, kind, own, value, more in self.lines if kind != "invoke" and f in (None, own)
        ]


class Cluster:
    """Logs of which each client reads what is there. Nobody answers send number ``refused``, nor each ``unanswered``-th."""

    def __init__(self, refused: int = -1, unanswered: int = 0, prefilled: int = 0) -> None:
        """``prefilled``: with how many values, sent by others, each of the first keys."""
        values = itertools.count(1_000_000)
        self.logs = {key: list(itertools.islice(values, prefilled)) for key in range(ACTIVE)} if prefilled else {}
        self.committed: dict[tuple[str, int], int] = {}
        self.connections: list[dict[str, Any]] = []
        self.ends: Counter[str] = Counter()
        self.refused, self.unanswered, self.sends = refused, unanswered, 0

    def is_refused(self, send: int) -> bool:
        return send == self.refused or bool(self.unanswered and send % self.unanswered == 0)

    def connect(self, _: str, cell: Cell, process: int, **given: Any) -> "Playing":
        self.connections.append({"process": process, **given})
        return Playing(self, cell, given["group"], given["records_a_poll"])


class Playing:
    """A client whose polls go round its keys. Its group has no other members."""

    def __init__(self, cluster: Cluster, cell: Cell, group: str | None, records_a_poll: int) -> None:
        self._cluster, self._cell, self._most = cluster, cell, records_a_poll
        self.group, self.member, self.generation = group, "m", 1
        self.events: list[dict[str, Any]] = []
        self.broken = False
        self.positions: dict[int, int] = {}
        self.began: dict[int, int] = {}
        self._round: list[int] = []
        self._at: dict[int, int] = {}
        self._is_open = False

    def send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        told: list[tuple[int | None, str]] = []
        for key, value in sends:
            self._cluster.sends += 1
            if self._cluster.is_refused(self._cluster.sends):
                told.append((None, INFO))
                continue
            log = self._cluster.logs.setdefault(key, [])
            log.append(value)
            told.append((len(log) - 1, OK))
        return told

    def poll(self) -> Runs:
        for _ in self._round:
            self._round.append(key := self._round.pop(0))
            at, log = self._at[key], self._cluster.logs.get(key, [])
            if at < len(log):
                end = min(len(log), at + self._most)
                self._at[key] = self.positions[key] = end
                return {key: [(offset, log[offset]) for offset in range(at, end)]}
        return {}

    def assign(self, keys: Sequence[int], *, from_start: bool) -> None:
        kept = {} if from_start else self.positions
        self._take({key: kept.get(key, 0) for key in keys})

    def subscribe(self, keys: Sequence[int]) -> None:
        self.began = {key: self._cluster.committed.get((str(self.group), key), 0) for key in keys}
        self._take(self.began)

    def _take(self, at: Mapping[int, int]) -> None:
        self._at, self._round = dict(at), list(at)
        self.positions = {key: offset for key, offset in self.positions.items() if key in at}

    def commit(self, offsets: Mapping[int, int]) -> str:
        self._cluster.committed.update({(str(self.group), key): offset for key, offset in offsets.items()})
        return OK

    def begin(self) -> None:
        assert not self._is_open
        self._is_open = True

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        self.commit(offsets)

    def commit_transaction(self) -> Ended:
        return self._end("commit", Ended(OK, True, 0))

    def abort_transaction(self) -> Ended:
        return self._end("abort", Ended(FAIL, True, None))

    def _end(self, how: str, ended: Ended) -> Ended:
        assert self._is_open
        self._is_open = False
        self._cluster.ends[how] += 1
        return ended

    def seek_back(self, positions: Mapping[int, int]) -> None:
        self._at.update({key: offset for key, offset in positions.items() if key in self._at})
        self.positions.update(positions)

    def close(self) -> None:
        self._cluster.ends["left open"] += self._is_open


def played(
    cell: Cell, *, seed: int = 1, number: int = 0, lines: int = _LINES, **of_cluster: int
) -> tuple[Lines, Cluster]:
    """Return what one worker wrote, and the cluster it worked on."""
    stop, cluster = threading.Event(), Cluster(**of_cluster)
    writer, keys = Lines(stop, lines), Keys(compacted=cell.compacted)

    def facts(what: str, keys: Sequence[int]) -> dict[int, Any]:
        return {key: (0, len(cluster.logs.get(key, []))) if what == "ends" else None for key in keys}

    Worker(number, 24, seed, "", cell, keys, writer, facts, connect=cluster.connect).run(stop)  # type: ignore[arg-type]
    return writer, cluster


def is_share(count: int, of: int, share: float) -> bool:
    """Tell whether a count is what chance makes of that share."""
    return abs(count - of * share) <= _SIGMAS * sqrt(of * share * (1 - share))


@pytest.mark.spec("HIS-42")
@pytest.mark.parametrize("via", ["assign", "subscribe"])
@pytest.mark.parametrize("guarantee", ["plain", "transactional"])
def test_operations_are_a_function_of_the_seed_and_of_what_was_answered(via: str, guarantee: str) -> None:
    cell = Cell(via, guarantee)
    once, again, another = (played(cell, seed=seed, lines=2000)[0].lines for seed in (5, 5, 6))
    assert once == again
    assert once[:200] != another[:200]
    otherwise = played(cell, seed=5, lines=2000, refused=100)[0].lines
    first = next(place for place, (one, other) in enumerate(zip(once, otherwise, strict=False)) if one != other)
    assert otherwise[first][1] != "invoke", "until an answer is another one the same is asked"
    assert once[first][:1] + once[first][2:3] == otherwise[first][:1] + otherwise[first][2:3]
    assert otherwise[first + 1 :] != once[first + 1 :]


@pytest.mark.spec("HIS-42")
def test_operations_have_one_to_four_parts_as_many_sends_as_polls_and_some_of_them_are_other_ones() -> None:
    lines, cluster = played(Cell("assign", "idempotent"))
    asked = [(f, value) for _, kind, f, value, _ in lines.lines if kind == "invoke"]
    parts = [value for f, value in asked if f in ("send", "poll", "mixed")]
    sizes = Counter(map(len, parts))
    assert set(sizes) == {1, 2, 3, 4}
    assert all(is_share(count, len(parts), 1 / 4) for count in sizes.values())
    kinds = Counter(part[0] for one in parts for part in one)
    assert is_share(kinds["send"], kinds.total(), 1 / 2)
    assert {f: {part[0] for part in value} for f, value in asked if f in ("send", "poll", "mixed")} == {
        "send": {"send"}, "poll": {"poll"}, "mixed": {"send", "poll"},
    }  # fmt: skip
    others = Counter(f for f, _ in asked)
    assigned = others["assign"] - len(cluster.connections)  # each process begins with one
    total = others.total() - len(cluster.connections)
    assert is_share(assigned, total, 1 / 64)
    assert is_share(others["ends"], total, 1 / 200)
    assert is_share(others["crash"], total, 1 / 600)


@pytest.mark.spec("HIS-42")
def test_who_subscribes_asks_for_commits_too_and_commits_after_each_poll() -> None:
    lines, _ = played(Cell("subscribe", "idempotent"))
    asked = Counter(f for _, kind, f, _, _ in lines.lines if kind == "invoke")
    assert is_share(asked["committed"], asked["committed"] + asked["ends"], 1 / 2)
    told = [value for f in ("poll", "mixed") for _, value, _ in lines.ended(f)]
    assert told
    for parts in told:
        behind = [after[0] for part, after in zip(parts, [*parts[1:], [""]], strict=True) if part[0] == "poll"]
        assert set(behind) == {"offsets"}


@pytest.mark.spec("HIS-42", "HIS-10")
def test_a_third_of_those_that_subscribe_poll_two_records_at_a_time() -> None:
    _, cluster = played(Cell("subscribe", "idempotent"), unanswered=20)
    polls = Counter(connection["records_a_poll"] for connection in cluster.connections)
    assert set(polls) == {2, 100}
    assert is_share(polls[2], polls.total(), 1 / 3)
    _, assigned = played(Cell("assign", "idempotent"))
    assert {connection["records_a_poll"] for connection in assigned.connections} == {100}
    numbers = [connection["process"] for connection in cluster.connections]
    assert numbers == list(range(0, 24 * len(numbers), 24)), "a process goes on as itself + number of workers"


@pytest.mark.spec("HIS-42")
def test_two_thirds_of_those_that_are_assigned_their_keys_fetch_some_values_at_a_time() -> None:
    _, cluster = played(Cell("assign", "idempotent"), lines=8000, unanswered=10)
    fetches = Counter(connection["bytes_a_fetch"] for connection in cluster.connections)
    assert set(fetches) == {1, 2000}
    assert is_share(fetches[2000], fetches.total(), 2 / 3)
    _, subscribed = played(Cell("subscribe", "idempotent"), lines=2000, unanswered=10)
    assert {connection["bytes_a_fetch"] for connection in subscribed.connections} == {1}


@pytest.mark.slow
@pytest.mark.spec("HIS-42")
def test_keys_that_are_taken_were_just_used_and_a_third_of_the_times_others_come_that_were_sent_what_was_not_polled() -> (
    None
):
    lines, cluster = played(Cell("assign", "idempotent"), lines=4 * _LINES)
    used: dict[int, None] = {}
    unpolled: dict[int, int] = {}
    taken = with_others = 0
    processes: set[Process] = set()

    def use(key: int) -> None:
        used.pop(key, None)
        used[key] = None

    for process, kind, f, value, _ in lines.lines:
        if f == "assign" and kind == "invoke":
            newest, left = set(list(used)[-ACTIVE:]), set(list(unpolled)[-ACTIVE:])
            if process not in processes:
                used.clear()
            elif newest:
                assert len(newest & set(value)) >= min(2, len(newest))
                others = set(value) - newest
                assert others in (set(), left - newest)
                taken += bool(left - newest)
                with_others += bool(others)
            processes.add(process)
        elif kind == OK and f in ("send", "poll", "mixed"):
            for part in value:
                if part[0] == "send":
                    use(part[1])
                    unpolled.pop(part[1], None)
                    unpolled[part[1]] = part[2][1]
                else:
                    for key, pairs in part[1].items():
                        use(key)
                        if unpolled.get(key) in [own for _, own in pairs]:
                            del unpolled[key]
    assert len(processes) == len(cluster.connections) > 10
    assert taken > 50
    assert is_share(with_others, taken, 1 / 3)
    assert any(len(value) > ACTIVE for _, value, _ in lines.ended("assign"))


@pytest.mark.spec("HIS-42")
def test_who_transforms_takes_keys_that_are_in_use_as_it_sends_to_none_of_them() -> None:
    lines, cluster = played(Cell("assign", "transactional"), number=2, prefilled=20)
    taken = [value for _, value, _ in lines.ended("subscribe")]
    assert len(taken) > len(cluster.connections) + 50
    assert {key for value in taken for key in value} == set(range(ACTIVE))
    assert min(map(len, taken)) == 2


@pytest.mark.spec("HIS-18", "HIS-42")
@pytest.mark.parametrize("guarantee", ["idempotent", "transactional"])
def test_a_record_that_is_none_of_the_run_s_is_told_and_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    real = Playing.poll

    def garbled(client: Playing) -> Runs:
        return {key: [*pairs, (pairs[-1][0] + 1, None)] for key, pairs in real(client).items()}

    monkeypatch.setattr(Playing, "poll", garbled)
    lines, _ = played(Cell("assign", guarantee), lines=2000, prefilled=200)
    assert len(lines.lines) >= 2000
    parts = [part for f in ("poll", "mixed", "txn") for _, told, _ in lines.ended(f) for part in told]
    assert any(pairs[-1][1] is None for part in parts if part[0] == "poll" for pairs in part[1].values())


@pytest.mark.spec("HIS-42")
def test_a_process_commits_what_it_polled_last_and_nothing_below_where_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, _ = played(Cell("subscribe", "idempotent"))
    commits = 0
    for f in ("poll", "mixed"):
        for _, parts, _ in lines.ended(f):
            polled: dict[int, int] = {}
            for part in parts:
                if part[0] == "poll":
                    polled |= {key: pairs[-1][0] + 1 for key, pairs in part[1].items()}
                elif part[0] == "offsets":
                    assert part[1] == polled
                    commits += len(polled)
                    polled = {}
    assert commits > 1000
    real = Playing.subscribe

    def goes_back(client: Playing, keys: Sequence[int]) -> None:
        real(client, keys)
        client.began = dict.fromkeys(keys, 40)  # and reads from before: as librdkafka may by itself

    monkeypatch.setattr(Playing, "subscribe", goes_back)
    lines, _ = played(Cell("subscribe", "idempotent"), lines=10_000)
    parts = [part for f in ("poll", "mixed") for _, told, _ in lines.ended(f) for part in told]
    committed = [offset for part in parts if part[0] == "offsets" for offset in part[1].values()]
    assert committed and min(committed) >= 40
    assert any(pairs[0][0] < 40 for part in parts if part[0] == "poll" for pairs in part[1].values())


@pytest.mark.spec("HIS-42")
def test_a_tenth_of_the_transactions_are_taken_back_and_one_in_fifty_is_left_open() -> None:
    for number, cell in ((0, Cell("assign", "transactional")), (2, Cell("assign", "transactional"))):
        lines, cluster = played(cell, number=number, lines=_LINES)
        transactions = [kind for kind, _, _ in lines.ended("txn")]
        assert len(transactions) > 9000
        assert cluster.ends.total() == len(transactions)
        assert is_share(cluster.ends["abort"], len(transactions), 1 / 10)
        assert is_share(cluster.ends["left open"], len(transactions), 1 / 50)
        assert transactions.count(OK) == cluster.ends["commit"]
        assert transactions.count(FAIL) == len(transactions) - cluster.ends["commit"]
        ended = [more.get("end", False) for _, _, more in lines.ended("txn")]
        assert sum(ended) == cluster.ends["left open"], "whose process is over"


@pytest.mark.spec("HIS-42")
@pytest.mark.parametrize("number", range(6))
def test_a_third_of_the_workers_of_transactions_consume_transform_and_produce(number: int) -> None:
    lines, cluster = played(Cell("assign", "transactional"), number=number, lines=4000, prefilled=2000)
    transactions = [value for _, value, _ in lines.ended("txn")]
    group = cluster.connections[0]["group"]
    if number % 3 != 2:
        assert group is None
        assert all(len(part) == 4 for value in transactions for part in value if part[0] == "send"), "no source"
        return
    assert group == "transformers-0"
    assert any(len(value) > 2 for value in transactions)
    for value in transactions:
        assert [part[0] for part in value] == ["poll", *["send"] * (len(value) - 2), "offsets"]
        polled = [[key, offset] for key, pairs in value[0][1].items() for offset, _ in pairs]
        assert [part[4] for part in value[1:-1]] == polled, "each value polled becomes another"
        assert not {key for key, _ in polled} & set(OUTPUTS), "and is none that had become one"
        assert {part[1] for part in value[1:-1]} <= set(OUTPUTS)
        assert value[-1][1] == {key: pairs[-1][0] + 1 for key, pairs in value[0][1].items()}


@pytest.mark.spec("HIS-42")
def test_who_subscribes_is_in_a_group_of_few_whose_members_are_of_several_processes() -> None:
    """In one of 24, each of which takes other keys now and then, nobody would have a key for long."""
    for cell, sizes in (
        (Cell("assign", "idempotent"), {}),
        (Cell("subscribe", "plain"), {f"members-{n}": 6 for n in range(4)}),
        (Cell("assign", "transactional"), {f"transformers-{n}": 4 for n in range(2)}),
        (
            Cell("subscribe", "transactional"),
            {f"members-{n}": 4 for n in range(4)} | {f"transformers-{n}": 4 for n in range(2)},
        ),
    ):
        assert groups_of(24, cell) == sorted(sizes)
        of_processes: dict[str, set[int]] = {}
        members: Counter[str] = Counter()
        for number in range(24):
            _, cluster = played(cell, number=number, lines=20)
            if (group := cluster.connections[0]["group"]) is not None:
                members[group] += 1
                of_processes.setdefault(group, set()).add(number % PROCESSES)
        assert members == sizes
        assert all(len(of_group) >= PROCESSES - 1 for of_group in of_processes.values())


@pytest.mark.spec("HIS-10", "HIS-42")
def test_a_tenth_of_those_that_go_on_as_another_process_fence_the_one_before() -> None:
    _, cluster = played(Cell("assign", "transactional"))  # those left open end their processes
    ids = [connection["transactional_id"] for connection in cluster.connections]
    assert len(ids) > 100
    kept = sum(one == other for one, other in itertools.pairwise(ids))
    assert is_share(kept, len(ids) - 1, 1 / 10)


@pytest.mark.spec("HIS-42")
def test_a_coordinator_that_cannot_be_reached_is_asked_again_by_the_same_process() -> None:
    stop, cluster = threading.Event(), Cluster()
    writer, refusals = Lines(stop, 100), [1, 2, 3]

    def connect(*given: Any, **more: Any) -> Playing:
        if refusals:
            refusals.pop()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return cluster.connect(*given, **more)

    Worker(3, 24, 1, "", Cell("assign", "transactional"), Keys(), writer, lambda *_: {}, connect=connect).run(stop)  # type: ignore[arg-type]
    assert not refusals
    assert writer.lines[0][:3] == (3, "invoke", "assign")
    assert writer.lines[-1][1:3] == (INFO, "crash"), "at the end each is over"


@pytest.mark.spec("HIS-41")
def test_keys_are_eight_each_twice_as_likely_as_the_one_before_and_retire_at_their_figure() -> None:
    chance = random.Random(3)
    places = Counter(draw_place(chance) for _ in range(100_000))
    assert ACTIVE == 8 and set(places) == set(range(8))
    assert all(is_share(places[place], 100_000, (1 << place) / 255) for place in range(8))
    assert (VALUES_A_KEY, VALUES_A_COMPACTED_KEY) == (256, 1024)
    for keys, limit in ((Keys(), 256), (Keys(compacted=True), 1024)):
        assert keys.active() == list(range(8))
        for value in range(1, limit + 1):
            assert keys.draw(5) == [(5, value)]
        assert (keys.count(5), keys.count(8)) == (limit, 0)
        assert keys.active() == [0, 1, 2, 3, 4, 8, 6, 7], "in the same place, as likely as before"
        assert keys.draw(5) == [(8, limit + 1)]


@pytest.mark.spec("HIS-41")
def test_a_tenth_of_the_values_of_compacted_keys_are_tombstones_and_none_of_others() -> None:
    for cleanup, share in (("compact", 0.1), ("delete", 0.0)):
        lines, _ = played(Cell("assign", "idempotent", cleanup=cleanup))
        asked = [value for _, kind, f, value, _ in lines.lines if kind == "invoke" and f in ("send", "mixed")]
        sent = [part[2] for parts in asked for part in parts if part[0] == "send"]
        assert len({abs(value) for value in sent}) == len(sent) > 5000
        assert is_share(sum(value < 0 for value in sent), len(sent), share)
        if share:
            assert {abs(value) % 16 for value in sent if value < 0} == set(range(16)), "of every record key"
