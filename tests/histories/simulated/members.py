"""Processes that are members of a group: they join, share out the keys, resume where it has committed, and commit."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from kafkatool.broker.groups.coordinator import FetchedOffsets, GroupCoordinator, OffsetToCommit
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.histories.history import FAIL, INFO, OK
from tests.histories.simulated.brokers import KEYS, OFFSETS, PATIENCE_MS, Broker, partition_of
from tests.histories.simulated.clients import Box, Process, Waits
from tests.histories.simulated.coordination import GROUP, SESSION_MS

_HEARTBEAT_MS: Final = 40.0
_AGAIN_MS: Final = 20.0  # after an answer that says to come again
_COMMIT_PATIENCE_MS: Final = 150.0  # less than a commit may be held up: then its member has come again before it does
CRASHES: Final = 0.01  # of operations

Call = Callable[[GroupCoordinator, Box], object]


class Member(Process):
    """One member. Beside its operations it keeps its place in the group, as clients' heartbeat threads do."""

    group = GROUP
    _untold: tuple[str, list[int]] | None = None  # what the group has decided, and the process has not heard

    def _begin(self) -> None:
        self._member, self._generation = "", -1
        self._events: list[dict[str, Any]] = []
        self._owned: dict[int, int] = {}  # position of each key, once it is known
        self._polled: dict[int, int] = {}  # what the next commit is of
        self._committed_in: int | None = None
        self._gave_up, self._joins = False, 0
        self._write("invoke", "subscribe", list(KEYS))
        self._write(OK, "subscribe", list(KEYS))
        self._belonging = self._belong()

    def _go_on(self) -> None:
        if not self.is_busy and self._untold is not None:
            self._note(*self._untold)
            self._untold = None
        super()._go_on()
        if not self.over:
            next(self._belonging)

    def _write(self, kind: str, f: str, value: Any = None, **more: Any) -> None:
        more["group"] = self.group
        if kind != "invoke":
            more["member"] = f"process-{self.number}" if self._member else None  # its id is another in each run
            if self._events:
                more["rebalance"], self._events = self._events, []
            if self._committed_in is not None:
                more["generation"], self._committed_in = self._committed_in, None
        super()._write(kind, f, value, **more)

    # --- operations -----------------------------------------------------------------------------------------------

    def _operate(self) -> Waits:
        if self._chance.random() < CRASHES:
            self._crash()
        else:
            yield from super()._operate()

    def _crash(self) -> None:
        self._write("invoke", "crash")
        self._write(INFO, "crash")
        self.over = True

    def _polls(self) -> list[list[Any]]:
        return [["poll"], ["offsets", None]]

    def _poll(self) -> dict[int, list[tuple[int, int | None]]]:
        runs: dict[int, list[tuple[int, int | None]]] = {}
        for key in sorted(self._owned):
            self._positions[key] = self._owned[key]
            pairs = self._fetched(key)
            self._owned[key] = self._positions[key]
            if pairs:
                runs[key] = pairs
                self._polled[key] = pairs[-1][0] + 1
        return runs

    def _commit(self) -> Waits:
        offsets = {key: to for key, to in self._polled.items() if key in self._owned}
        self._polled = {}
        if not offsets or self._gave_up:
            return ["offsets", {}, OK]
        wanted = {partition_of(key): to_commit(to) for key, to in offsets.items()}
        member, generation = self._member, self._generation
        told = yield from self._ask_group(
            lambda groups, box: groups.commit(self.group, member, None, generation, wanted, box.put),
            _COMMIT_PATIENCE_MS,
        )
        self._gave_up = told is None  # nobody commits again beside a commit that may still be on its way
        if told is None or any(code is not ErrorCode.NONE for code in told.values()):
            return ["offsets", offsets, INFO]
        self._committed_in = generation
        return ["offsets", offsets, OK]

    questions = 0.15

    def _ask(self) -> Waits:
        if self._chance.random() < 0.2:
            yield from super()._ask()
            return
        self._write("invoke", "committed")
        told: FetchedOffsets | None = yield from self._ask_group(_fetch_offsets(self.group, KEYS))
        if told is None or told.error is not ErrorCode.NONE or told.unstable:
            self._write(FAIL, "committed")
        else:
            self._write(OK, "committed", _by_key(told))

    # --- its place in the group -----------------------------------------------------------------------------------

    def _belong(self) -> Waits:
        while True:
            joined: JoinResult | None = yield from self._join()
            if joined is None or joined.error is not ErrorCode.NONE:
                if joined is not None and joined.error is ErrorCode.MEMBER_ID_REQUIRED:
                    self._member = joined.member_id
                    continue
                if joined is not None and joined.error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member = ""
                yield from self._wait(_AGAIN_MS)
                continue
            self._member = joined.member_id
            synced: SyncResult | None = yield from self._sync(joined)
            if synced is None or synced.error is not ErrorCode.NONE:
                if synced is not None and synced.error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member = ""
                yield from self._wait(_AGAIN_MS)
                continue
            keys = orjson.loads(synced.assignment or b"[]")
            self._generation, self._gave_up = joined.generation, False
            yield from self._tell("assigned", keys)
            yield from self._stay(keys)

    def _join(self) -> Waits:
        self._joins += 1  # with other metadata each time, which begins another generation
        request = JoinRequest(
            self._member,
            None,
            f"process-{self.number}",
            "simulated",
            SESSION_MS,
            2 * SESSION_MS,
            "consumer",
            (("shares", b"%d" % self._joins),),
            needs_known_id=True,
        )
        return (
            yield from self._ask_group(lambda groups, box: groups.join(self.group, request, Parked(box.put, _drop)))
        )

    def _sync(self, joined: JoinResult) -> Waits:
        assignments: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            members = [member for member, _, _ in joined.members]
            shares: dict[str, list[int]] = {member: [] for member in members}
            for key in KEYS:
                shares[members[(key + joined.generation) % len(members)]].append(key)
            assignments = {member: orjson.dumps(keys) for member, keys in shares.items()}
        return (
            yield from self._ask_group(
                lambda groups, box: groups.sync(
                    self.group, joined.member_id, None, joined.generation, assignments, Parked(box.put, _drop)
                )
            )
        )

    def _stay(self, keys: list[int]) -> Waits:
        """Find where to resume, and send heartbeats until the group wants something else."""
        unknown, heard = keys, self._clock()
        while True:
            if self._gave_up:
                if self._chance.random() < 0.5:  # else it comes again by the same id
                    self._member = ""
                yield from self._tell("lost", keys)
                return
            if unknown:
                found: FetchedOffsets | None = yield from self._ask_group(_fetch_offsets(self.group, unknown))
                if found is not None and found.error is ErrorCode.NONE and not found.unstable:
                    self._owned.update({key: to or 0 for key, to in _by_key(found, unknown).items()})
                    unknown = []
            member, generation = self._member, self._generation
            code: ErrorCode | None = yield from self._ask_group(
                lambda groups, box: box.put(groups.heartbeat(self.group, member, None, generation))  # noqa: B023
            )
            match code:
                case ErrorCode.NONE:
                    heard = self._clock()
                case ErrorCode.REBALANCE_IN_PROGRESS:
                    yield from self._tell("revoked", keys)
                    return
                case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                    yield from self._tell("lost", keys)
                    if code is ErrorCode.UNKNOWN_MEMBER_ID:
                        self._member = ""
                    return
                case _:
                    if self._clock() - heard > SESSION_MS:
                        yield from self._tell("lost", keys)
                        return
            yield from self._wait(_HEARTBEAT_MS)

    def _tell(self, what: str, keys: list[int]) -> Waits:
        """Have the process hear of it between two operations, as a client is told in its polls."""
        self._untold = what, keys
        while self._untold is not None:
            yield

    def _note(self, what: str, keys: Iterable[int]) -> None:
        self._owned.clear()
        self._polled.clear()
        event = {"what": what, "keys": list(keys), "generation": self._generation, "time": self._writer.now()}
        self._events.append(event)

    def _ask_group(self, call: Call, patience_ms: float = PATIENCE_MS) -> Waits:
        """Ask the group's coordinator. None: there is none, or no answer came while it was waited for."""
        box = yield from self._ask_coordinator(
            OFFSETS, lambda coordination, box: call(coordination.groups, box), patience_ms
        )
        return box.answer


def committed_of(coordinator: Broker, group: str) -> dict[int, int | None] | None:
    """Ask for all that the group has committed; None: a transaction may be about to change it, or it is not known."""
    box = Box()
    _fetch_offsets(group, KEYS)(coordinator.coordination.groups, box)
    found: FetchedOffsets = box.answer
    return None if found.unstable or found.error is not ErrorCode.NONE else _by_key(found)


def _fetch_offsets(group: str, keys: Iterable[int]) -> Call:
    wanted = [partition_of(key) for key in keys]
    return lambda groups, box: box.put(groups.fetch_offsets(group, wanted, stable=True))


def _by_key(found: FetchedOffsets, keys: Iterable[int] = KEYS) -> dict[int, int | None]:
    offsets = {key: found.offsets.get(partition_of(key)) for key in keys}
    return {key: None if value is None else value.offset for key, value in offsets.items()}


def to_commit(offset: int) -> OffsetToCommit:
    return OffsetToCommit(OffsetValue(offset, None, "", 0, None), metadata_too_large=False)


def _drop() -> None:
    """A parked request's connection is closed: its answer does not come."""
