"""What each broker says of itself: the requests it serves, its log directories, its settings. All are asked at once.

A broker too old for a question answers the others.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.client.rights import refusal
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerUnreachableError, NotPermittedError
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import describe_configs, describe_log_dirs
from kafkatool.core.protocol.messages.error_codes import ErrorCode

LIMIT_S: Final = 5.0  # for all of a broker's answers (ADM-105)
AT_ONCE: Final = 32  # brokers asked at the same time, so that many silent ones cost little more than one
_BROKER: Final = 4  # the resource type
_DESCRIBE_QUORUM: Final = 55  # an API that brokers with ZooKeeper do not serve
_Response = TypeVar("_Response")

Served = Mapping[int, tuple[int, int]]
"""Key of each API that a broker serves -> its lowest and highest version."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker. ``sizes`` in bytes, of replicas that are there for good; None: not told.

    ``arriving``: replicas on their way to it from another directory of the broker.
    """

    path: str
    offline: bool
    sizes: Mapping[TopicPartition, int]
    total_bytes: int | None
    free_bytes: int | None
    arriving: frozenset[TopicPartition] = frozenset()

    @property
    def bytes(self) -> int:
        """Return what its replicas come to."""
        return sum(self.sizes.values())


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The answers of one broker. ``log_dirs`` and ``configs`` are None where it does not know the question, or us.

    ``refused`` are its refusals for want of rights, and what they leave unknown. ``sources`` tell where each of the configs
    comes from, as DescribeConfigs from version 1 on numbers them.
    """

    served: Served
    log_dirs: tuple[LogDir, ...] | None
    configs: Mapping[str, str] | None
    refused: tuple[tuple[NotPermittedError, str], ...] = ()
    sources: Mapping[str, int] = field(default_factory=dict)


class Answers(NamedTuple):
    """The brokers' answers by id, and why others did not answer."""

    told: Mapping[int, BrokerAnswer]
    silent: Mapping[int, BrokerUnreachableError]


def ask_brokers(
    brokers: Iterable[BrokerInfo],
    connections: Connections,
    *,
    configs: Collection[str] = (),
    limit_s: float = LIMIT_S,
    unseen: Unseen | None = None,
) -> Answers:
    """Ask every broker; ``configs`` are the settings wanted of each. ``unseen`` is told what they may not tell us."""
    told, silent = {}, {}
    asked = list(brokers)

    def ask(broker: BrokerInfo) -> BrokerAnswer | BrokerUnreachableError:
        try:
            return _ask(broker, connections, configs, time.monotonic() + limit_s)
        except BrokerUnreachableError as e:
            return e

    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(asked))), thread_name_prefix="kt-ask") as threads:
        for broker, answer in zip(asked, threads.map(ask, asked), strict=True):
            if isinstance(answer, BrokerAnswer):
                told[broker.id] = answer
            else:
                silent[broker.id] = answer
    if unseen is not None:
        for answered in told.values():
            for error, consequence in answered.refused:
                unseen.note(error, consequence)
    return Answers(told, silent)


def _ask(broker: BrokerInfo, connections: Connections, configs: Collection[str], deadline: float) -> BrokerAnswer:
    access = connections.access
    endpoint = access.endpoint(broker)
    if endpoint is None:
        raise BrokerUnreachableError(access.why_not(broker))

    def left_ms() -> int:
        return max(1, int((deadline - time.monotonic()) * 1000))

    connection = connections.to(Address(endpoint.host, endpoint.port), timeout_ms=left_ms())

    def send(api: Api, request: Request[_Response]) -> _Response | None:
        known = connection.version_of(api) is not None
        return connection.send(api, request, timeout_ms=left_ms()) if known else None

    refused: list[tuple[NotPermittedError, str]] = []

    def refuse(api: Api, code: int, consequence: str) -> None:
        about = {"broker": f"broker {broker.id}", "principal": access.security.principal}
        error = refusal(api, code, None, None, **about)
        if isinstance(error, NotPermittedError):
            refused.append((error, consequence))

    log_dirs = _log_dirs(send, refuse)
    entries = _configs(send, refuse, broker.id, configs) if configs else ()
    values = None if entries is None else {c.name: c.value for c in entries if c.value is not None}
    sources = {c.name: c.config_source for c in entries or () if c.config_source >= 0}
    return BrokerAnswer(connection.versions, log_dirs, values, tuple(refused), sources)


def is_kraft(served: Served) -> bool:
    """Tell whether that is a broker without ZooKeeper: the controller that those name is one of them, at random (ADM-7)."""
    return _DESCRIBE_QUORUM in served


_Send = Callable[[Api, Request[_Response]], _Response | None]
_Refuse = Callable[[Api, int, str], None]


def _log_dirs(send: _Send[describe_log_dirs.DescribeLogDirsResponse], refuse: _Refuse) -> tuple[LogDir, ...] | None:
    answer = send(describe_log_dirs.API, describe_log_dirs.DescribeLogDirsRequest(topics=None))
    # No directory at all is what versions below 3 tell who may not ask, of a broker that has at least one (SEC-40).
    if answer is None or answer.error_code or not answer.results:
        if answer is not None:
            code = answer.error_code or ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            refuse(describe_log_dirs.API, code, "log directories and their sizes are not known")
        return None
    return tuple(
        LogDir(
            path=found.log_dir,
            offline=bool(found.error_code),
            sizes={
                TopicPartition(t.topic, p.partition): p.partition_size
                for t in found.topics
                for p in t.partitions
                if not p.is_future_key
            },
            total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
            free_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
            arriving=frozenset(
                TopicPartition(t.topic, p.partition) for t in found.topics for p in t.partitions if p.is_future_key
            ),
        )
        for found in sorted(answer.results, key=lambda r: r.log_dir)
    )


def _configs(
    send: _Send[describe_configs.DescribeConfigsResponse], refuse: _Refuse, broker: int, names: Collection[str]
) -> Sequence[describe_configs.DescribeConfigsEntry] | None:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=_BROKER, resource_name=str(broker), configuration_keys=sorted(names)
    )
    answer = send(describe_configs.API, describe_configs.DescribeConfigsRequest(resources=[resource]))
    if answer is None or any(r.error_code for r in answer.results):
        for r in answer.results if answer is not None else ():
            refuse(describe_configs.API, r.error_code, f"{', '.join(sorted(names))} of the brokers are not known")
        return None
    return [c for r in answer.results for c in r.configs]
