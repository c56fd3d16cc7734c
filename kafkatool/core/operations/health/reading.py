"""One look at the cluster: all that the checks of ``kt health`` need, as values."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import NoPermissionError, ZnodeFormatError
from kafkatool.core.model.values import PartitionState, TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, ask_brokers
from kafkatool.core.operations.brokers.releases import release_of
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.operations.reassignment.throttles import RATES, REPLICAS, rates_by_broker
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
)

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
BROKER_RATES: Final = (*RATES, LOG_DIR_RATE)


class Voter(NamedTuple):
    """A voter of KRaft's quorum, and for how long it has not caught up with the newest; None: since it was elected."""

    id: int
    behind_s: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found ``at_s``, in seconds since 1970, as all times here. Absent nodes are None, or not in the mapping.

    ``requests``: when the nodes below /admin that ask for something were made. ``deletions``: when topics were marked.
    ``recovering``: led by a replica that was elected uncleanly. ``rates``: throttles of brokers, ``default_rates`` those
    of all brokers. ``carried_out``: a kt on this machine carries out a plan. ``rates_untold``: why those could not be read.

    By requests less is told: ``controller_since_s`` is None, and ``term`` changes with the controller instead (None: nobody
    tells who it is). ``voters`` are those of KRaft's quorum. Where not ``moves_told`` nobody tells what moves. ``untold``:
    what this look cannot say, by check.
    """

    at_s: float
    view: ClusterView
    controller_since_s: float | None
    controller_epoch: int | None
    controller_epoch_writes: int
    controller_epoch_since_s: float
    requests: Mapping[str, float]
    deletions: Mapping[str, float]
    recovering: frozenset[TopicPartition]
    rates: Mapping[int, Mapping[str, str]]
    default_rates: Mapping[str, str]
    answers: Answers
    carried_out: bool
    rates_untold: str | None = None
    term: tuple[int | None, int] | None = None
    voters: tuple[Voter, ...] = ()
    moves_told: bool = True
    untold: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def moving(self) -> frozenset[TopicPartition]:
        """Return the partitions that are moved, by either way."""
        return self.view.moving

    @property
    def is_anything_moving(self) -> bool:
        """Tell whether anything moves or will, for all we know: partitions, replicas between log directories, a plan's
        batches.
        """
        between_dirs = any(d.arriving for answer in self.answers.told.values() for d in answer.log_dirs or ())
        return (
            not self.moves_told
            or bool(self.moving)
            or between_dirs
            or self.carried_out
            or ReassignmentZnode.PATH in self.requests
        )

    @property
    def unjudged_dir_rates(self) -> frozenset[int]:
        """Return the brokers with a rate for moves between log directories that do not tell of all their directories."""
        tells = {
            broker
            for broker, answer in self.answers.told.items()
            if answer.log_dirs is not None and not any(d.offline for d in answer.log_dirs)
        }
        return frozenset(broker for broker, rates in self.rates.items() if LOG_DIR_RATE in rates) - tells

    @property
    def releases(self) -> tuple[str, ...]:
        """Return the releases of Kafka that brokers are of, as far as they answer."""
        return tuple(sorted({str(release_of(answer.served)) for answer in self.answers.told.values()}))

    def leader(self, p: TopicPartition) -> int | None:
        """Return its leader, None where there is none that lives."""
        state = self.view.states.get(p)
        leader = state.leader_and_isr.leader if state else None
        return leader if leader in self.view.brokers else None

    @property
    def throttles(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the throttle keys set, by entity: rates of brokers, replica lists of topics that are not empty.

        The rate of moves between log directories is not among them where nobody tells whether there are any.
        """
        found = {}
        for broker, rates in sorted(self.rates.items()):
            left_out = {LOG_DIR_RATE} if broker in self.unjudged_dir_rates else set[str]()
            if judged := {key: rate for key, rate in rates.items() if key not in left_out}:
                found["brokers", str(broker)] = judged
        for topic, config in sorted(self.view.configs.items()):
            if lists := {key: config[key] for key in REPLICAS if config.get(key)}:
                found["topics", topic] = lists
        return found


def read(zk: ZooKeeper, connections: Connections) -> Reading:
    """Look at the cluster; writes nothing."""
    at_s = time.time()
    view = read_cluster(zk, states=False, configs=True)
    view, recovering = _with_states(zk, view)
    marked = sorted(view.marked_for_deletion)
    requests = [ReassignmentZnode.PATH, PreferredElectionZnode.PATH]
    controller, epoch, *rest = zk.get_many(
        [ControllerZnode.PATH, ControllerEpochZnode.PATH, *requests, *map(DeleteTopicsZnode.topic_path, marked)]
    )
    rates: Mapping[int, Mapping[str, str]] = {}
    default_rates: Mapping[str, str] = {}
    rates_untold = None
    try:
        rates = rates_by_broker(zk, BROKER_RATES)
        (default,) = read_configs(zk, [("brokers", ConfigZnode.DEFAULT)])
        default_rates = {key: default.stored[key] for key in BROKER_RATES if key in default.stored}
    except NoPermissionError as e:
        rates_untold = str(e)
    return Reading(
        at_s=at_s,
        view=view,
        controller_since_s=_made(controller) if controller else None,
        controller_epoch=ControllerEpochZnode.decode(epoch.data) if epoch else None,
        controller_epoch_writes=epoch.version if epoch else 0,
        controller_epoch_since_s=_made(epoch) if epoch else at_s,
        requests={path: _made(node) for path, node in zip(requests, rest[: len(requests)], strict=True) if node},
        deletions={topic: _made(node) for topic, node in zip(marked, rest[len(requests) :], strict=True) if node},
        recovering=recovering,
        rates=rates,
        default_rates=default_rates,
        answers=ask_brokers(view.brokers.values(), connections, configs=(MIN_ISR, UNCLEAN)),
        carried_out=run_lock.any_held(),
        rates_untold=rates_untold,
    )


def _made(node: Node) -> float:
    return node.ctime_ms / 1000


def _with_states(zk: ZooKeeper, view: ClusterView) -> tuple[ClusterView, frozenset[TopicPartition]]:
    """Return the view with its states, and which leaders are recovering: one read tells both."""
    partitions = view.partitions()
    states, recovering = {}, set()
    for partition, node in zip(partitions, zk.get_many([*map(PartitionStateZnode.path, partitions)]), strict=True):
        if node is None:
            continue
        try:
            states[partition] = PartitionState(PartitionStateZnode.decode(partition, node.data), node.version)
        except ZnodeFormatError:
            continue  # it counts as having no leader
        if PartitionStateZnode.is_recovering(node.data):
            recovering.add(partition)
    return replace(view, states=states), frozenset(recovering)
