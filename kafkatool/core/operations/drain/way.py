"""What a drain asks of a way to the cluster: its nodes in ZooKeeper, or requests to its brokers."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kafkatool.core.client.connections import Connections
from kafkatool.core.operations.brokers.answers import Answers, ask_brokers
from kafkatool.core.operations.drain.requested_throttles import NotAsBefore
from kafkatool.core.operations.reassignment.events import Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.submission import Submission
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import ClusterView

S = TypeVar("S", bound=Submission)
_Taken = TypeVar("_Taken", bound=Submission, contravariant=True)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cluster. ``hidden``: why there may be more than the view has, for each thing that says so.

    ``blind``: brokers that were asked what is on their disks and did not tell, where that may be more than the view has.
    """

    view: ClusterView
    answers: Answers
    hidden: tuple[str, ...] = ()
    blind: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """How replicas are moved: bytes per second and broker (None: unthrottled), and partitions of one batch (0: all)."""

    throttle: int | None
    batch_partitions: int
    rack_aware: bool


class Round(Protocol[_Taken]):
    """The run of one round's plan; its methods work while their events are taken.

    ``Run`` and ``Cancellation`` of `reassignment` say how.
    """

    def start(self, prepared: _Taken, *, timeout_s: float | None) -> Iterator[Event]: ...
    def resume(self, state: RunState, *, timeout_s: float | None) -> Iterator[Event]: ...
    def end_early(self) -> Iterator[Event]: ...
    def cancel(self, origin: Moves, terms: Terms | None, *, timeout_s: float | None) -> Iterator[Event]: ...
    def end_cancel(self) -> Iterator[Event]: ...


class Way(Protocol[S]):
    """Looks at a cluster, prepares plans and carries them out.

    ``look`` asks the brokers in ``asked``, so far as they are live, what is on their disks; None: all. ``prepare`` writes
    nothing. Both raise RefusedError.
    """

    def look(self, asked: Collection[int] | None) -> Look: ...
    def prepare(self, look: Look, moves: Moves, terms: Terms) -> S: ...
    def round(self, plan: Moves, files: RunFiles, on_progress: Callable[[Progress], None]) -> Round[S]: ...
    def find_not_as_before(self, saved: Sequence[SavedThrottle]) -> NotAsBefore: ...


def ask(view: ClusterView, asked: Collection[int] | None, connections: Connections) -> Answers:
    """Ask those of the brokers that are live, None: all, what is on their disks."""
    wanted = [info for broker, info in view.brokers.items() if asked is None or broker in asked]
    return ask_brokers(wanted, connections)
