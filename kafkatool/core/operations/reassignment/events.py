"""The events of a run: what has happened, in the order it happened, for whoever shows it."""

from dataclasses import dataclass
from pathlib import Path

from kafkatool.core.errors import KafkatoolError, RefusedError
from kafkatool.core.model.moves import Move
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.copy_progress import ToCopy
from kafkatool.core.operations.reassignment.status import LeftThrottle, Verification
from kafkatool.core.operations.reassignment.submission import Submission


class Event:
    """The base of all events."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unchanged(Event):
    """So many partitions of the plan, or ``all``, have the planned replicas already."""

    partitions: int
    all: bool


@dataclass(frozen=True, slots=True)
class ThrottleFound(Event):
    """An earlier plan has left its throttle, and the one that starts may move under it."""

    left: LeftThrottle


@dataclass(frozen=True, slots=True)
class WayBack(Event):
    """``file`` holds the replicas from before; not ``saved``: by an earlier run. ``kept``: where its old content is.

    ``moved``: so many partitions that one has moved already.
    """

    prepared: Submission
    file: Path
    saved: bool
    kept: Path | None = None
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The throttles are set, and the first batch is under way."""

    prepared: Submission


@dataclass(frozen=True, slots=True)
class StartCutShort(Event):
    """The start of a plan that is not followed ended early. ``begun``: the plan is under way all the same.

    ``throttled``: throttles are not as they were before. ``unseen`` hides both.
    """

    begun: bool
    throttled: bool
    unseen: KafkatoolError | None = None


@dataclass(frozen=True, slots=True)
class Following(Event):
    """The progress told from here on is that of ``copying``: of ``what``, or of the plan itself."""

    copying: ToCopy
    what: str = ""


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The run ended, of itself or, if not ``finished``, at its deadline with ``unsent`` partitions not sent.

    ``awaited``: brokers without which it does not end, and that are not registered.
    """

    moves: tuple[Move, ...]
    completed: bool
    finished: bool
    unsent: int
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ThrottleRemoved(Event):
    """Throttles are as they were, but for ``changed``: those that somebody else wrote meanwhile, by their names."""

    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RatesLeft(Event):
    """The rates of these brokers were set by others since the run began, and stand though nothing moves any more."""

    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThrottleLeft(Event):
    """The throttles of these brokers are left as they were, since the brokers are down and cannot be asked."""

    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ThrottleStays(Event):
    """The throttles were not removed: other partitions are moved under the same rates, by the znode or by requests."""


@dataclass(frozen=True, slots=True)
class LeftUnfinished(Event):
    """The run can be resumed. ``moving``: brokers go on with what was sent, or may, as ``unseen`` hides it.

    ``throttled``: throttles are still set.
    """

    moving: bool
    throttled: bool
    unseen: KafkatoolError | None


@dataclass(frozen=True, slots=True)
class Verified(Event):
    """``found`` with what is still to be sent as pending. ``resumable``: a run of the plan has left its state file."""

    found: Verification
    carried_out: bool
    resumable: bool


@dataclass(frozen=True, slots=True)
class NotCancelled(Event):
    """The state file is that of a run of another plan, as this one was before it was edited: that run goes on."""

    why: RefusedError


@dataclass(frozen=True, slots=True)
class StillCarriedOut(Event):
    """The kt that carries out the cancelled plan has not let go of it: it will see the mark once it looks."""


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """How far the plan, or the way back, is. ``ended``: nothing is under way, else the deadline passed first."""

    found: Verification
    ended: bool


@dataclass(frozen=True, slots=True)
class Gone(Event):
    """These were left out: the topic was deleted, or made anew with fewer partitions, since the plan was made."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SentBack(Event):
    """So many partitions are asked to go back to what they were, of the znode or of the controller."""

    partitions: int


@dataclass(frozen=True, slots=True)
class Released(Event):
    """So many partitions were taken out of the znode: it asked for what the controller does not carry out."""

    partitions: int


@dataclass(frozen=True, slots=True)
class NotSentBack(Event):
    """No way back is known for these, which are under way: they are waited for."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MovedByRequest(Event):
    """These are moved by a request to the controller, which the znode does not reach: they go on."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class NotTurnedRound(Event):
    """So many that were sent back are still under way: it seems that ``controller`` does not look."""

    partitions: int
    controller: int | None


@dataclass(frozen=True, slots=True)
class CancelCutShort(Event):
    """What of the plan is in the znode when a cancel ends early: going on to the plan, and going back.

    ``copying``: replicas have to catch up, of those or of what requests move; only then ``throttled``, throttles being left
    as they are.
    """

    forward: int
    back: int
    copying: bool
    throttled: bool
