"""The throttle of a run: what it is to become at the end, set anew for other moves, taken off (RSN-10, RSN-23X)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import ConfigWrite
from kafkatool.core.operations.reassignment import events, throttles
from kafkatool.core.operations.reassignment.events import Event, ThrottleRemoved
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles, RunState
from kafkatool.core.operations.reassignment.submission import plan_throttle
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper


def rate_begun(zk: ZooKeeper, plan: Moves, files: RunFiles) -> int | None:
    """Read the bytes per second and broker that the plan was begun under, if that stands still; None: it does not.

    Nor is it told where another plan has its state file: there is no place to note what is set anew.
    """
    if (run := files.unfinished_run(plan)) is not None:
        return run.rate
    if files.state.exists() or not RunThrottles(zk, plan).has_lists():
        return None
    rates = throttles.rates_by_broker(zk).values()
    return max((int(rate) for keys in rates for rate in keys.values() if rate.isdecimal()), default=None)


class RunThrottles:
    """The rates and lists that runs of one plan have set, over one session. ``topics``: those of the plan."""

    def __init__(self, zk: ZooKeeper, plan: Moves) -> None:
        self._zk, self._plan = zk, plan
        self.topics = {p.topic for p in plan}

    def has_lists(self) -> bool:
        """Tell whether a topic of the plan has lists of throttled replicas, as a run sets them."""
        return bool(self.topics.intersection(throttles.listed_topics(self._zk)))

    def read_rates(self) -> Mapping[int, Mapping[str, str]] | None:
        """Read what each broker has; None: that may not be read."""
        try:
            return throttles.rates_by_broker(self._zk)
        except NoPermissionError:
            return None

    def find_rates_left(self, state: RunState, before: Mapping[int, Mapping[str, str]] | None) -> tuple[int, ...]:
        """Return the brokers with rates that others have set since the run began, as those of a throttle (RSN-10).

        ``before``: what ``read_rates`` returned then.
        """
        now = self.read_rates()
        if before is None or not now:
            return ()
        ending = {**before, **{int(t.name): t.before for t in state.throttles if t.entity_type == "brokers"}}
        left = tuple(broker for broker, rates in sorted(now.items()) if rates != ending.get(broker))
        return () if left and self.find_others() else left

    def find_others(self) -> frozenset[TopicPartition]:
        """Read what moves anywhere, by either way, and was not begun by this plan."""
        view = read_cluster(self._zk, states=False)
        return view.moving.difference(set(view.reassignment or ()).intersection(self._plan))

    def set_anew(self, run: RunState, moves: Moves, rate: int, note: Callable[[RunState], None]) -> None:
        """Set the throttle that fits those moves in place of that of ``run``.

        ``note`` writes the state file, called with what is to be undone before anything of it is set. Lists are put back
        first: so at any moment they are what stood there before, or what the file says.
        """
        throttles.restore_lists(self._zk, run.throttles)
        if not moves:
            return
        view = read_cluster(self._zk, {p.topic for p in moves}, states=False)
        writes = plan_throttle(self._zk, view, moves, rate)
        self._zk.check_permitted([op for write in writes for op in write.ops])
        note(replace(run, throttles=throttles.merged(run.throttles, throttles.saved(writes))))
        throttles.apply(self._zk, writes)

    def restore(self, run: RunState) -> Iterator[Event]:
        """Make what a run has set what it was before."""
        if not run.throttles:
            return
        restored = throttles.restore(self._zk, run.throttles, run.earlier, self.find_others())
        yield events.ThrottleStays() if restored.rates_stay else ThrottleRemoved(restored.changed)

    def take_off(self, run: RunState | None) -> Iterator[Event]:
        """Restore what was saved; where nothing was, as of a run that was not followed, remove what is this plan's."""
        if run is not None and run.throttles:
            yield from self.restore(run)
        elif (removal := self._plan_removal()) and self.find_others():
            yield events.ThrottleStays()
        elif removal:
            throttles.apply(self._zk, removal)
            yield ThrottleRemoved()

    def plan_taking_off(self, run: RunState | None) -> list[ConfigWrite]:
        """Plan what ``take_off`` would write if what others move, and under which lists, stayed as it is now."""
        if run is not None and run.throttles:
            return throttles.plan_restoration(self._zk, run.throttles, run.earlier, self.find_others())
        removal = self._plan_removal()
        return [] if removal and self.find_others() else removal

    def _plan_removal(self) -> list[ConfigWrite]:
        """Plan to take off rates and lists; without lists of the plan's topics the rates are not this plan's."""
        removal = throttles.plan_removal(self._zk, self.topics)
        return [] if all(write.entity_type == "brokers" for write in removal) else removal
