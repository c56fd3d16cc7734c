"""Looks at a cluster, made by hand: three brokers, a topic of two partitions, all well unless said otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, BrokerAnswer, LogDir
from kafkatool.core.operations.health.reading import Reading
from kafkatool.core.zookeeper.cluster_view import ClusterView
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode

NOW: Final = 1_700_000_000.0
LONG_AGO: Final = NOW - 1e6
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ASSIGNED: Final[Mapping[int, tuple[int, ...]]] = {0: (1, 2, 3), 1: (2, 3, 1)}


def state(leader: int | None, *isr: int, epoch: int = 0, version: int = 0) -> PartitionState:
    return PartitionState(LeaderAndIsr(leader, epoch, isr, 1), version)


def log_dir(free: int | None = 90, *, offline: bool = False, **more: Any) -> LogDir:
    return LogDir("/data", offline, more.get("sizes", {}), 100, free, more.get("arriving", frozenset()))


def told(directory: LogDir | None = None, *, fetch: int = 3, **configs: str) -> BrokerAnswer:
    found = None if directory is None else (directory,)
    return BrokerAnswer({18: (0, 0), 1: (0, fetch)}, found, {k.replace("_", "."): v for k, v in configs.items()})


def reading(
    *,
    at_s: float = NOW,
    live: Sequence[int] = (1, 2, 3),
    controller: int | None = 1,
    assigned: Mapping[int, tuple[int, ...]] = ASSIGNED,
    states: Mapping[TopicPartition, PartitionState] | None = None,
    config: Mapping[str, str] | None = None,
    moves: Mapping[TopicPartition, tuple[int, ...]] | None = None,
    noted: Mapping[str, Any] | None = None,
    marked: Mapping[str, float] | None = None,
    answers: Mapping[int, BrokerAnswer] | None = None,
    silent: Mapping[int, BrokerUnreachableError] | None = None,
    topic_id: str | None = "id",
    **more: Any,
) -> Reading:
    """Return a look; ``noted`` is what else the topic's node holds, ``answers`` those that differ."""
    view = ClusterView(
        brokers={b: BrokerInfo(b, (Endpoint("PLAINTEXT", "h", 1),)) for b in live},
        controller_id=controller,
        cluster_id="c",
        topics={"t": TopicZnode(assigned, dict(noted or {}))},
        states={TopicPartition("t", p): state(r[0], *r) for p, r in assigned.items()} | dict(states or {}),
        configs={"t": dict(config or {})},
        marked_for_deletion=frozenset(marked or ()),
        reassignment=moves,
        election=None,
        topic_ids={} if topic_id is None else {"t": topic_id},
    )
    values: dict[str, Any] = {
        "controller_since_s": LONG_AGO,
        "controller_epoch": 7,
        "controller_epoch_writes": 6,
        "controller_epoch_since_s": LONG_AGO,
        "requests": {} if moves is None else {ReassignmentZnode.PATH: at_s},
        "recovering": frozenset(),
        "rates": {},
        "default_rates": {},
        "carried_out": False,
    }
    quiet = dict(silent or {})
    replies = {b: told(log_dir()) for b in live if b not in quiet} | dict(answers or {})
    return Reading(at_s=at_s, view=view, deletions=marked or {}, answers=Answers(replies, quiet), **(values | more))
