"""What the logs of a walk say: the moves of each transactional id, what became of each record, a group's offset."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from kafkatool.broker.groups.coordinator import GroupCoordinator, OffsetToCommit
from kafkatool.broker.groups.records import OffsetValue, decode_offset
from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.broker.transactions.records import decode_key, decode_value
from kafkatool.broker.transactions.states import TransactionState as State
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import CONTROL, BatchHeader, Record, iter_batches, iter_records
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.logs import everything
from tests.broker.transactions.stage import OFFSETS, OWN, Stage

GROUP: Final = "g"
INPUT: Final = TopicPartition("input", 0)

# The moves that a log may show, spelled here once more: a test by the table of the product would prove nothing.
_IDLE: Final = {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
_STORED: Final[Mapping[State | None, set[State]]] = {  # from -> to
    None: {State.EMPTY},
    State.EMPTY: {State.EMPTY, State.ONGOING},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING},
}


def _records(on: Stage, place: TopicPartition) -> Iterator[tuple[BatchHeader, Record]]:
    data = memoryview(everything(on.world.partition(place).log))
    for position, header in iter_batches(data):
        for record in iter_records(data[position : position + header.size_bytes]):
            yield header, record


def outcomes(on: Stage, place: TopicPartition) -> list[tuple[bytes, bool]]:
    """Return each record of a transaction that has ended, by its name, and whether it was committed."""
    return [(name, committed) for _, name, committed in _ends(on, place)[0]]


def _ends(on: Stage, place: TopicPartition) -> tuple[list[tuple[int, bytes, bool]], int]:
    """Return position, name and outcome of each record that has its marker, and how many have none."""
    open_: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    found: list[tuple[int, bytes, bool]] = []
    for position, (header, record) in enumerate(_records(on, place)):
        if header.attributes & CONTROL:
            committed = bytes(record.key or b"")[-1] == 1
            found += [(at, name, committed) for at, name in open_.pop(header.producer_id, [])]
        else:
            value = bytes(record.value or b"")
            name = decode_offset(value).metadata.encode() if place == OFFSETS else value
            open_[header.producer_id].append((position, name))
    return found, sum(map(len, open_.values()))


def check_moves(on: Stage) -> None:
    """Hold each record of a transactional id against the one before it."""
    known: dict[str, Transaction] = {}
    for _, record in _records(on, OWN):
        id_ = decode_key(record.key or b"")
        assert id_ is not None and record.value is not None
        after, before = decode_value(record.value), known.get(id_)
        _check_move(id_, before, after)
        known[id_] = after


def _check_move(id_: str, before: Transaction | None, after: Transaction) -> None:
    came_from = None if before is None else before.state
    moved = f"illegal move of {id_}: {before} to {after}"
    assert after.state in _STORED[came_from], moved
    if before is None:
        assert after.epoch == 0, moved
        return
    raised = (after.producer_id, after.epoch - before.epoch)
    if after.state is State.EMPTY:
        assert raised == (before.producer_id, 1), moved
    elif after.state is State.PREPARE_ABORT:  # by its producer, or by who fences it
        assert raised in ((before.producer_id, 0), (before.producer_id, 1)), moved
    else:
        assert raised == (before.producer_id, 0), moved
    if after.state in _IDLE:
        assert after.partitions == frozenset(), moved
    elif before.state is State.ONGOING:
        ends = after.state is not State.ONGOING
        assert after.partitions == before.partitions if ends else after.partitions > before.partitions, moved


class WalkedGroup:
    """A group whose offset of INPUT is committed in transactions, and its coordinator, which comes and goes."""

    def __init__(self, on: Stage) -> None:
        self._on = on
        self._epoch = 0
        self._offsets = count(1)
        self._named: dict[bytes, int] = {}
        self._scheduler = ManualScheduler()  # the stage's forgets what it has when a coordinator dies
        self._coordinator = GroupCoordinator(
            on.world.config, on.world.manager, on.world.cache, self._scheduler, count_partitions=lambda: 1
        )
        on.hear_of_ends.append(
            lambda end: self._coordinator.end_transaction(
                end.partition, end.producer_id, committed=end.committed, log_offset=end.log_offset
            )
        )
        self._lead()

    def _lead(self) -> None:
        self._coordinator.on_leadership_change([self._on.world.partition(OFFSETS)], [])
        self._scheduler.run()

    def move(self) -> None:
        """Let the coordinator go elsewhere and come back, with nothing but the log."""
        self._epoch += 1
        self._coordinator.on_leadership_change([], [self._on.world.lead(OFFSETS, epoch=self._epoch)])
        self._epoch += 1
        self._on.world.lead(OFFSETS, epoch=self._epoch)
        self._lead()

    def commit(
        self, id_: str, identity: Identity, name: bytes, acknowledged: set[tuple[TopicPartition, bytes]]
    ) -> ErrorCode | None:
        """Commit the next offset, told apart by its name. None: there is no answer yet."""
        name = b"%s-%d" % (name, offset := next(self._offsets))
        self._named[name] = offset
        answers: list[ErrorCode] = []

        def done(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            answers.append(codes[INPUT])
            if answers[0] is ErrorCode.NONE:
                acknowledged.add((OFFSETS, name))

        value = OffsetValue(offset, None, name.decode(), 1, None)
        self._coordinator.commit_in_transaction(
            GROUP,
            TransactionalProducer(id_, *identity),
            "",
            None,
            -1,
            {INPUT: OffsetToCommit(value, metadata_too_large=False)},
            done,
        )
        return answers[0] if answers else None

    def check(self, *, settled: bool = False) -> None:
        """Hold what the coordinator says against the log: the last commit whose transaction was committed."""
        ended, open_ = _ends(self._on, OFFSETS)
        last: Any = max(((at, name) for at, name, committed in ended if committed), default=None)
        wanted = None if last is None else self._named[last[1]]
        fetched = self._coordinator.fetch_offsets(GROUP, [INPUT], stable=True)
        assert fetched.error is ErrorCode.NONE
        found = fetched.offsets.get(INPUT)
        assert (None if found is None else found.offset) == wanted, "the group's offset is not what the log says"
        if open_ or settled:
            assert bool(fetched.unstable) == bool(open_), "an offset that may change is told as one that will not"
