"""A cluster of fake brokers with one memory, which moves replicas and keeps configs as a controller would."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import (
    alter_replica_log_dirs,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    metadata,
)
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.alter_configs import AlterConfigsResult
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsEntry, DescribeConfigsResult
from kafkatool.core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.list_partition_reassignments import OngoingPartition, OngoingTopic
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.core.client.fake_broker import FakeBroker


class Cluster:
    """Three brokers with one memory. ``moving``: partition of ``t`` -> replicas, adding, removing."""

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = brokers
        self.replicas = {0: [1, 2], 1: [2, 1], 2: [1, 2]}
        self.moving: dict[int, tuple[list[int], list[int], list[int]]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.refusals: dict[int, tuple[int, str]] = {}
        self.ends_at_once = False
        self.others: list[str] = []
        """Topics beside ``t``, without partitions."""
        self.lies_in: dict[tuple[int, int], tuple[str, str | None]] = {}
        """Broker and partition of ``t`` -> the log directory of the replica, and the one that it is on its way to."""
        for broker in brokers:
            broker.knows, broker.controller_id = brokers, 1
            broker.answers |= {
                metadata.API.key: self._metadata,
                listing.API.key: self._list,
                altering.API.key: self._alter,
                describe_configs.API.key: self._describe,
                describe_log_dirs.API.key: partial(self._describe_dirs, broker.id),
                alter_replica_log_dirs.API.key: partial(self._alter_dirs, broker.id),
                incremental_alter_configs.API.key: self.set,
            }

    def run(self, mode: str, *args: object) -> Result:
        flags = ["--bootstrap-server", str(self.brokers[0].address)]
        return CliRunner().invoke(kt, ["reassign", *flags, f"--{mode}", *map(str, args)])

    def asked(self, api: str) -> list[tuple[int, Any]]:
        return [(b.id, request) for b in self.brokers for name, _, request in b.asked if name == api]

    def _metadata(self, request: metadata.MetadataRequest) -> object:
        wanted = None if request.topics is None else [t.topic for t in request.topics]
        partitions = [
            MetadataResponsePartition(
                partition=p,
                leader_id=r[0],
                replica_nodes=self.moving[p][0] if p in self.moving else r,
                isr_nodes=r,
            )
            for p, r in self.replicas.items()
        ]
        topics = [MetadataResponseTopic(topic="t", partitions=partitions)] if wanted is None or "t" in wanted else []
        more = [MetadataResponseTopic(topic=name, partitions=[]) for name in self.others if wanted is None]
        return self.brokers[0].metadata(topics + more)

    def _list(self, request: listing.ListPartitionReassignmentsRequest) -> object:
        wanted = None if request.topics is None else {p for t in request.topics for p in t.partitions}
        partitions = [
            OngoingPartition(partition=p, replicas=r, adding_replicas=a, removing_replicas=d)
            for p, (r, a, d) in self.moving.items()
            if wanted is None or p in wanted
        ]
        topics = [OngoingTopic(topic="t", partitions=partitions)] if partitions else []
        return listing.ListPartitionReassignmentsResponse(topics=topics)

    def _alter(self, request: altering.AlterPartitionReassignmentsRequest) -> object:
        results = []
        for p in (p for t in request.topics for p in t.partitions):
            code, message = self.refusals.get(p.partition, (0, None))
            results.append(altering.PartitionMoveResult(partition=p.partition, error_code=code, error_message=message))
            if code:
                continue
            if p.replicas is None:
                self.moving.pop(p.partition)
            elif self.ends_at_once:
                self.replicas[p.partition] = p.replicas
            else:
                before = self.replicas[p.partition]
                adding = [b for b in p.replicas if b not in before]
                gone = [b for b in before if b not in p.replicas]
                self.moving[p.partition] = ([*p.replicas, *gone], adding, gone)
        return altering.AlterPartitionReassignmentsResponse(
            topics=[altering.TopicMoveResults(topic="t", partitions=results)]
        )

    def _describe(self, request: describe_configs.DescribeConfigsRequest) -> object:
        results = []
        for r in request.resources:
            if code := self._judge(r.resource_type, r.resource_name):
                results.append(
                    DescribeConfigsResult(
                        error_code=code, resource_type=r.resource_type, resource_name=r.resource_name, configs=[]
                    )
                )
                continue
            found = self.configs.get((r.resource_type, r.resource_name), {})
            entries = [
                DescribeConfigsEntry(name=k, value=v, read_only=False, config_source=1 if r.resource_type == 2 else 2)
                for k, v in found.items()
                if r.configuration_keys is None or k in r.configuration_keys
            ]
            results.append(
                DescribeConfigsResult(resource_type=r.resource_type, resource_name=r.resource_name, configs=entries)
            )
        return describe_configs.DescribeConfigsResponse(results=results)

    def _describe_dirs(self, broker: int, request: describe_log_dirs.DescribeLogDirsRequest) -> object:
        wanted = None if request.topics is None else {p for t in request.topics for p in t.partitions}
        held: dict[str, list[DescribeLogDirsPartition]] = {"/data": []}
        for (on, p), paths in self.lies_in.items():
            for path in paths if on == broker and (wanted is None or p in wanted) else ():
                if path is not None:
                    future = path == paths[1]
                    held.setdefault(path, []).append(
                        DescribeLogDirsPartition(partition=p, partition_size=1, offset_lag=0, is_future_key=future)
                    )
        results = [
            DescribeLogDirsResult(log_dir=path, topics=[DescribeLogDirsTopic(topic="t", partitions=here)])
            for path, here in held.items()
        ]
        return describe_log_dirs.DescribeLogDirsResponse(results=results)

    def _alter_dirs(self, broker: int, request: alter_replica_log_dirs.AlterReplicaLogDirsRequest) -> object:
        asked = [(p, d.path) for d in request.dirs for t in d.topics for p in t.partitions]
        for p, path in asked:
            current, _ = self.lies_in[broker, p]
            self.lies_in[broker, p] = (current, None if path == current else path)
        moved = [alter_replica_log_dirs.AlterReplicaLogDirsResponsePartition(partition=p) for p, _ in asked]
        return alter_replica_log_dirs.AlterReplicaLogDirsResponse(
            results=[alter_replica_log_dirs.AlterReplicaLogDirsResponseTopic(topic="t", partitions=moved)]
        )

    def set(self, request: incremental_alter_configs.IncrementalAlterConfigsRequest) -> object:
        for r in request.resources if not request.validate_only else ():
            if self._judge(r.resource_type, r.resource_name):
                continue
            config = self.configs.setdefault((r.resource_type, r.resource_name), {})
            for c in r.configs:
                if c.config_operation == 1:
                    config.pop(c.name, None)
                else:
                    config[c.name] = c.value or ""
        return incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResult(
                    error_code=self._judge(r.resource_type, r.resource_name),
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            ]
        )

    def _judge(self, kind: int, name: str) -> int:
        """Return the error of a config's resource: of a topic that is not there."""
        gone = kind == 2 and name not in ("t", *self.others)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else ErrorCode.NONE


@contextmanager
def cluster_of_four() -> Iterator[Cluster]:
    """Run brokers 1 to 4."""
    apis = {
        altering.API: (0, 1),
        listing.API: (0, 0),
        describe_configs.API: (0, 4),
        describe_log_dirs.API: (0, 1),
        alter_replica_log_dirs.API: (0, 1),
        incremental_alter_configs.API: (0, 1),
    }
    with ExitStack() as running:
        yield Cluster([running.enter_context(FakeBroker(i, apis)) for i in (1, 2, 3, 4)])
