"""A drain by the cluster's nodes in ZooKeeper; brokers are asked what is on their disks, which only they know."""

from collections.abc import Callable, Collection, Iterator, Sequence

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.client.connections import Connections
from kafkatool.core.operations.drain.requested_throttles import NotAsBefore
from kafkatool.core.operations.drain.way import Look, Terms, ask
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.events import Event
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.cancellation import Cancellation, CancelTerms
from kafkatool.core.operations.reassignment.runs.run import Run
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.submission import Prepared, prepare
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.plan_files import Moves, dashed
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper


class ByZnode:
    """The way over one session, and the connections to brokers."""

    def __init__(self, zk: ZooKeeper, connections: Connections) -> None:
        self._zk, self._connections = zk, connections

    def look(self, asked: Collection[int] | None) -> Look:
        """Read the whole cluster. Raises RefusedError: no broker could be asked, so that an end could not be proven."""
        view = read_cluster(self._zk)
        self._connections.access.check(view.brokers.values())
        unread = tuple(f"znode {path} cannot be read" for path in view.unreadable)
        return Look(view, ask(view, asked, self._connections), unread)

    def prepare(self, look: Look, moves: Moves, terms: Terms) -> Prepared:
        return prepare(self._zk, moves, throttle=terms.throttle, max_count=terms.batch_partitions, name_of=dashed)

    def round(self, plan: Moves, files: RunFiles, on_progress: Callable[[Progress], None]) -> "ZnodeRound":
        return ZnodeRound(self._zk, plan, files, on_progress, self._connections.access)

    def find_not_as_before(self, saved: Sequence[SavedThrottle]) -> NotAsBefore:
        return NotAsBefore(tuple(throttles.not_restored(self._zk, saved)))


class ZnodeRound:
    """A round that is a run of `reassignment`."""

    def __init__(
        self,
        zk: ZooKeeper,
        plan: Moves,
        files: RunFiles,
        on_progress: Callable[[Progress], None],
        access: BrokerAccess,
    ) -> None:
        self._zk, self._plan, self._files = zk, plan, files
        self._on_progress, self._access = on_progress, access
        self._run = Run(zk, plan, files, name_of=dashed, on_progress=on_progress)
        self._cancellation: Cancellation | None = None

    def start(self, prepared: Prepared, *, timeout_s: float | None) -> Iterator[Event]:
        return self._run.start(prepared, followed=True, timeout_s=timeout_s)

    def resume(self, state: RunState, *, timeout_s: float | None) -> Iterator[Event]:
        return self._run.resume(state, self._access, force=False, timeout_s=timeout_s)

    def end_early(self) -> Iterator[Event]:
        return self._run.end_early()

    def cancel(self, origin: Moves, terms: Terms | None, *, timeout_s: float | None) -> Iterator[Event]:
        back = CancelTerms()
        if terms is not None:
            back = CancelTerms(rollback=True, throttle=terms.throttle, batch_partitions=terms.batch_partitions)
        self._cancellation = Cancellation(
            self._zk, self._plan, self._files, origin, back, name_of=dashed, on_progress=self._on_progress
        )
        return self._cancellation.carry_out(self._access, timeout_s=timeout_s)

    def end_cancel(self) -> Iterator[Event]:
        return iter(()) if self._cancellation is None else self._cancellation.end_early()
