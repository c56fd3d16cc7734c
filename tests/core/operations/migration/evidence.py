"""What is found of a cluster of Kafka 3.9 with ZooKeeper that is ready for KRaft, unless said otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, BrokerAnswer, LogDir
from kafkatool.core.operations.migration.controllers import ControllerAnswer, Controllers
from kafkatool.core.operations.migration.reading import Evidence
from kafkatool.core.operations.requests.quorum import NO_QUORUM, Quorum
from kafkatool.core.zookeeper.view import ClusterView
from kafkatool.core.zookeeper.znodes import KRaftControllerZnode, MigrationZnode, TopicZnode

KAFKA_3_9: Final = {0: 11, 1: 17, 2: 9, 3: 12, 4: 7, 9: 9, 11: 9, 16: 5, 18: 4, 19: 7, 24: 5, 35: 4}
KAFKA_3_8: Final = {**KAFKA_3_9, 1: 16}
KAFKA_3_7: Final = {**KAFKA_3_8, 0: 10}
KAFKA_3_6: Final = {**KAFKA_3_9, 0: 9, 1: 15, 24: 4}
KAFKA_3_5: Final = {**KAFKA_3_6, 24: 3}
KAFKA_3_4: Final = {**KAFKA_3_9, 0: 9, 1: 13, 24: 3}
KAFKA_3_3: Final = {**KAFKA_3_4, 4: 6}
KRAFT_3_9: Final = {api: version for api, version in KAFKA_3_9.items() if api != 4}
ASSIGNED: Final[Mapping[int, tuple[int, ...]]] = {0: (1, 2), 1: (2, 1)}
T0: Final = TopicPartition("t", 0)
BY_KRAFT: Final = KRaftControllerZnode(3000, 1)
LOADED: Final = MigrationZnode(3000, 1, 99, 1)
BEGUN: Final = MigrationZnode(-1, -1, -1, -1)


def infos(ids: Sequence[int]) -> dict[int, BrokerInfo]:
    return {b: BrokerInfo(b, (Endpoint("PLAINTEXT", "h", 1),)) for b in ids}


def says(
    highest: Mapping[int, int] = KAFKA_3_9,
    dirs: Sequence[LogDir] = (LogDir("/d", False, {}, None, None),),
    **configs: str,
) -> BrokerAnswer:
    own = {"inter.broker.protocol.version": "3.9-IV0", "authorizer.class.name": "", "delete.topic.enable": "true"}
    settings = {**own, **{key.replace("_", "."): value for key, value in configs.items()}}
    return BrokerAnswer({api: (0, v) for api, v in highest.items()}, tuple(dirs), settings)


NOBODY: Final = Controllers(None, {}, {}, NO_QUORUM, "no controller answers: c:1: refused", refused=True)
UNHEARD: Final = Controllers(None, {}, {}, NO_QUORUM, "no controller answers: c:1: no answer")
"""They may be alive: the one address that is known did not refuse the connection."""


def controllers_say(
    *,
    migrates: Sequence[bool] = (True, True),
    level: int | None = 21,
    silent: Sequence[int] = (),
    leader: int | None = 3000,
    behind_s: Mapping[int, float | None] | None = None,
    untold: str = "",
) -> Controllers:
    """Controllers 3000, 3001 and so on, of 3.9."""
    told = {3000 + i: ControllerAnswer(ready, level) for i, ready in enumerate(migrates)}
    behind = dict.fromkeys(told, 0.1) if behind_s is None else behind_s
    return Controllers("c", told, dict.fromkeys(silent, "no answer"), Quorum(leader, 1, behind), untold=untold)


def evidence(
    *,
    registered: Sequence[int] = (1, 2),
    told: Sequence[int] = (1, 2),
    assigned: Mapping[int, tuple[int, ...]] = ASSIGNED,
    leader: int | None = None,
    isr: Sequence[int] | None = None,
    raw: Mapping[str, Any] | None = None,
    overrides: Mapping[str, str] | None = None,
    marked: Sequence[str] = (),
    answers: Mapping[int, BrokerAnswer] | None = None,
    silent: Sequence[int] = (),
    configs: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None,
    **more: Any,
) -> Evidence:
    states = {TopicPartition("t", p): PartitionState(LeaderAndIsr(r[0], 0, r, 1), 0) for p, r in assigned.items() if r}
    if leader is not None or isr is not None:
        lead = assigned[0][0] if leader is None else (leader if leader >= 0 else None)
        states[T0] = PartitionState(LeaderAndIsr(lead, 0, tuple(assigned[0] if isr is None else isr), 1), 0)
    view = ClusterView(
        brokers=infos(registered),
        controller_id=1,
        cluster_id="c",
        topics={"t": TopicZnode(assigned, {"topic_id": "x", **(raw or {})})},
        states=states,
        configs={"t": dict(overrides or {})},
        marked_for_deletion=frozenset(marked),
        reassignment=None,
        election=None,
    )
    replies = {b: says(KAFKA_3_9 if b in registered else KRAFT_3_9) for b in {*registered, *told}} | dict(answers or {})
    found = Evidence(
        view=view,
        brokers=infos(told),
        answers=Answers(
            {b: a for b, a in replies.items() if b not in silent},
            {b: BrokerUnreachableError("no answer") for b in silent},
        ),
        controller=KRaftControllerZnode(1, None),
        controller_epoch=5,
        migration=None,
        unreadable=(),
        topics=("t",),
        configs={"topics": {}, "users": {}, "clients": {}, "brokers": {}, **(configs or {})},
        orphans=(),
        admin=frozenset({"delete_topics"}),
        stale_changes=0,
        generated_ids=0,
        acls=0,
        tokens=0,
    )
    return replace(found, **more)
