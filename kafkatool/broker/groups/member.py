"""One member of a group: what it asked for when it joined, and the answers it waits for."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from kafkatool.broker.groups.records import MemberValue
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

T = TypeVar("T")
Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata, in the member's order of preference."""


def metadata_bytes(protocols: Protocols) -> int:
    """Return how much what a member offers holds."""
    return sum(len(name) + len(data) for name, data in protocols)


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The contents of a JoinGroup. ``needs_known_id``: version 4 on, a first join gets its id and comes again (GRP-24).

    ``connection`` stands for the one that it came by.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    connection: object | None = None

    @property
    def asks_for_id(self) -> bool:
        """Tell whether it gets an id alone, and comes again with that."""
        return self.member_id == "" and self.needs_known_id and self.instance_id is None


@dataclass(frozen=True, slots=True)
class JoinResult:
    """Answer to JoinGroup. ``members`` is (id, instance id, metadata), filled for the leader only (GRP-31)."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """Answer to SyncGroup."""

    error: ErrorCode
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Parked(Generic[T]):
    """A request kept without answer; ``drop`` ends its connection without one (GRP-35)."""

    send: Callable[[T], None]
    drop: Callable[[], None]

    def answer(self, result: T) -> None:
        """Answer it. An answer that cannot be sent ends the connection: else its client would wait for ever."""
        try:
            self.send(result)
        except Exception:  # whatever it was, it concerns this client alone
            log.exception("a parked request could not be answered, its connection is closed")
            self.drop()


@dataclass(slots=True)
class Member:
    """A member of a group. Deadlines are in ms of the coordinator's clock, None: none runs."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: Parked[JoinResult] | None = None
    sync: Parked[SyncResult] | None = None
    is_new: bool = False  # its first JoinGroup is still parked (GRP-33)
    session_deadline_ms: float | None = None
    sync_deadline_ms: float | None = None  # answered in the join phase, owes a SyncGroup (GRP-42)

    @property
    def metadata_bytes(self) -> int:
        """Return how much its metadata is."""
        return metadata_bytes(self.protocols)

    @classmethod
    def admitted(cls, member_id: str, request: JoinRequest, session_deadline_ms: float) -> Self:
        """Make a new one, by its first JoinGroup."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
            session_deadline_ms=session_deadline_ms,
        )

    @classmethod
    def restored(cls, value: MemberValue, protocol: str, now_ms: float) -> Self:
        """Make it as a loaded record has it, with one full session from now (GRP-13)."""
        return cls(
            value.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            value.session_timeout_ms,
            ((protocol, value.subscription),),
            value.assignment,
            session_deadline_ms=now_ms + value.session_timeout_ms,
        )

    def to_value(self, protocol: str, assignment: bytes) -> MemberValue:
        """Return its part of the group's record."""
        return MemberValue(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def update(self, request: JoinRequest) -> None:
        """Take over what a later JoinGroup says."""
        self.protocols = request.protocols
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.client_id, self.client_host = request.client_id, request.client_host

    def metadata(self, protocol: str) -> bytes:
        """Return its bytes for that protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")
