"""Moves of replicas between the log directories of their brokers, begun and looked at by requests (ADM-40; KIP-113)."""

import enum
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, NotPermittedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE, Change, Set, broker_request
from kafkatool.core.planner.plan_files import LogDirs, PlacedReplica
from kafkatool.core.protocol.messages import alter_replica_log_dirs, describe_log_dirs
from kafkatool.core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsTopic,
)
from kafkatool.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_PAUSE_S: Final = 0.1  # as Kafka's tool


class LogDirRefusedError(KafkatoolError):
    """A broker refused to have a replica in that directory."""


class DirState(enum.Enum):
    """How far a replica is on its way to the directory that a plan names."""

    COMPLETED = enum.auto()
    IN_PROGRESS = enum.auto()
    ELSEWHERE_BOUND = enum.auto()  # on its way to another directory
    NOT_MOVING = enum.auto()
    NOT_FOUND = enum.auto()
    """In no directory that works."""
    NOT_KNOWN = enum.auto()
    """Its broker cannot be asked, or may not tell us."""

    @property
    def is_completed(self) -> bool:
        """Tell whether it is where it is to be."""
        return self is DirState.COMPLETED

    @property
    def is_known(self) -> bool:
        """Tell whether its broker tells of it."""
        return self is not DirState.NOT_KNOWN

    @property
    def is_moving(self) -> bool:
        """Tell whether it is on its way, wherever to."""
        return self in (DirState.IN_PROGRESS, DirState.ELSEWHERE_BOUND)


class Placement(NamedTuple):
    """The directory a replica is to lie in, the one it lies in, and the one it is on its way to; None: there is none."""

    replica: PlacedReplica
    target: str
    current: str | None
    future: str | None
    state: DirState

    @property
    def text(self) -> str:
        """Say how far it is, in the words of Kafka's tool."""
        (partition, broker), target = self.replica, self.target
        return {
            DirState.COMPLETED: f"Reassignment of replica {self.replica} completed successfully.",
            DirState.IN_PROGRESS: f"Reassignment of replica {self.replica} is still in progress.",
            DirState.ELSEWHERE_BOUND: f"Partition {partition} on broker {broker} is being moved to log dir "
            f"{self.future} instead of {target}.",
            DirState.NOT_MOVING: f"Partition {partition} on broker {broker} is not being moved from log dir "
            f"{self.current} to {target}.",
            DirState.NOT_FOUND: f"Partition {partition} is not found in any live log dir on broker {broker}. There is "
            "likely an offline log directory on the broker.",
            DirState.NOT_KNOWN: f"Partition {partition} cannot be found in any live log directory on broker {broker}.",
        }[self.state]


def requests(wanted: LogDirs) -> list[tuple[int, AlterReplicaLogDirsRequest]]:
    """Make the requests that ask each broker for its own replicas."""
    by_broker: dict[int, dict[str, dict[str, list[int]]]] = {}
    for ((topic, number), broker), path in sorted(wanted.items()):
        by_broker.setdefault(broker, {}).setdefault(path, {}).setdefault(topic, []).append(number)
    return [
        (
            broker,
            AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[AlterReplicaLogDirsTopic(topic=t, partitions=numbers) for t, numbers in topics.items()],
                    )
                    for path, topics in dirs.items()
                ]
            ),
        )
        for broker, dirs in by_broker.items()
    ]


def begin(
    client: ClusterClient, wanted: LogDirs, timeout_s: float, on_begun: Callable[[Collection[PlacedReplica]], object]
) -> LogDirs:
    """Have each replica move, again while a broker has it not yet; return those that no broker took in that time.

    ``on_begun`` gets those taken, as they are. Raises LogDirRefusedError, BrokerUnreachableError, UnsupportedApiError.
    """
    deadline = time.monotonic() + timeout_s
    left = dict(wanted)
    while True:
        begun = [replica for broker, request in requests(left) for replica in _begin_on(client, broker, request)]
        if begun:
            on_begun(sorted(begun))
        left = {replica: path for replica, path in left.items() if replica not in begun}
        if not left or time.monotonic() >= deadline:
            return left
        time.sleep(_PAUSE_S)


def _begin_on(client: ClusterClient, broker: int, request: AlterReplicaLogDirsRequest) -> Iterable[PlacedReplica]:
    api = alter_replica_log_dirs.API
    for topic in client.broker(broker, api, request).results:
        for answer in topic.partitions:
            replica = PlacedReplica(TopicPartition(topic.topic, answer.partition), broker)
            if answer.error_code == ErrorCode.NONE:
                yield replica
            elif answer.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:  # else it is still to be made there
                why = client.refusal(api, answer.error_code, resource=str(replica.partition))
                raise LogDirRefusedError(f"Failed to alter dir for {replica}: {why}")


def find(client: ClusterClient, wanted: LogDirs) -> list[Placement]:
    """Look where those replicas are and where they are bound for. Raises UnsupportedApiError."""
    current: dict[PlacedReplica, str] = {}
    future: dict[PlacedReplica, str] = {}
    unknown: set[int] = set()
    for broker in sorted({replica.broker for replica in wanted}):
        topics: dict[str, list[int]] = {}
        for partition, on in sorted(wanted):
            if on == broker:
                topics.setdefault(partition.topic, []).append(partition.partition)
        request = DescribeLogDirsRequest(
            topics=[DescribeLogDirsRequestTopic(topic=t, partitions=numbers) for t, numbers in topics.items()]
        )
        if (results := _described(client, broker, request)) is None:
            unknown.add(broker)
            continue
        for found in results:
            for topic in found.topics:
                for p in topic.partitions:
                    replica = PlacedReplica(TopicPartition(topic.topic, p.partition), broker)
                    (future if p.is_future_key else current)[replica] = found.log_dir
    return [
        Placement(
            replica,
            path,
            current.get(replica),
            future.get(replica),
            DirState.NOT_KNOWN
            if replica.broker in unknown
            else _state(path, current.get(replica), future.get(replica)),
        )
        for replica, path in sorted(wanted.items())
    ]


def _state(target: str, current: str | None, future: str | None) -> DirState:
    if current is None:
        return DirState.NOT_FOUND
    if future is not None:
        return DirState.IN_PROGRESS if future == target else DirState.ELSEWHERE_BOUND
    return DirState.COMPLETED if current == target else DirState.NOT_MOVING


def _described(
    client: ClusterClient, broker: int, request: DescribeLogDirsRequest
) -> Sequence[DescribeLogDirsResult] | None:
    """Return what that broker tells of its directories; None: it is not up, or may not tell us, which is noted."""
    try:
        answer = client.broker(broker, describe_log_dirs.API, request)
    except BrokerUnreachableError:
        return None
    if answer.error_code or not answer.results:
        # No directory is named to who may not ask, and versions below 3 say no more than that (SEC-40).
        code = answer.error_code or ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        error = client.refusal(describe_log_dirs.API, code)
        if isinstance(error, NotPermittedError):
            client.unseen.note(error, "moves between its log directories are not known")
        return None
    return answer.results


class RatesInUse(NamedTuple):
    """The brokers whose rate of moves between log directories is needed, and those that do not tell whether it is."""

    moving: tuple[int, ...] = ()
    untold: tuple[int, ...] = ()


def keep_rates(client: ClusterClient, found: Set) -> tuple[Set, RatesInUse]:
    """Take out of what is to be removed the rate of each broker on which a replica moves, or may move, under it."""
    brokers = dict(found.brokers)
    moving: list[int] = []
    untold: list[int] = []
    for broker, keys in found.brokers.items():
        if LOG_DIR_RATE not in keys:
            continue
        results = _described(client, broker, DescribeLogDirsRequest(topics=None))
        if results is not None and not any(p.is_future_key for r in results for t in r.topics for p in t.partitions):
            continue
        (untold if results is None else moving).append(broker)
        brokers[broker] = [key for key in keys if key != LOG_DIR_RATE]
    left = {broker: keys for broker, keys in brokers.items() if keys}
    return found._replace(brokers=left), RatesInUse(tuple(moving), tuple(untold))


def throttle_requests(client: ClusterClient, wanted: LogDirs, rate: int) -> list[Change]:
    """Make the requests that set the rate on the brokers that are up and have a replica to move."""
    brokers = sorted({replica.broker for replica in wanted} & client.brokers.keys())
    return [(broker, broker_request(broker, {LOG_DIR_RATE: rate})) for broker in brokers]
