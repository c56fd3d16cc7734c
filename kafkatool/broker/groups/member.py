"""One member of a group, and the answers it waits for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kafkatool.core.protocol.error_codes import ErrorCode

T = TypeVar("T")


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

    answer: Callable[[T], None]
    drop: Callable[[], None]


@dataclass(slots=True)
class Member:
    """``protocols`` in the member's order of preference; deadlines in ms of the coordinator's clock, None: none runs."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join: Parked[JoinResult] | None = None
    sync: Parked[SyncResult] | None = None
    is_new: bool = False  # its first JoinGroup is still parked (GRP-33)
    session_deadline_ms: float | None = None
    sync_deadline_ms: float | None = None  # answered in the join phase, owes a SyncGroup (GRP-42)

    def metadata(self, protocol: str) -> bytes:
        """Its bytes for that protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")
