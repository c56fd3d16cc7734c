"""Latency of single records: one request of one record under way at a time, in silence and under control requests.

The client is a bare socket with frames made beforehand, so that next to nothing but the brokers is measured.
"""

import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.clusters import DEADLINE_S, Cluster, ask_metadata
from benchmarks.figures import Figure, alternate
from benchmarks.topics import delete_topic, make_topic
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages import leader_and_isr, produce, update_metadata
from kafkatool.core.protocol.records.batches import Record, encode_batch
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode

REQUESTS: Final = 2000
WARM_UP_REQUESTS: Final = 3000
"""Before the first round: the JVM compiles what it will need."""
_TOPIC: Final = "single"
_WIDE: Final = "told"
_PRODUCE_VERSION, _LEADER_AND_ISR_VERSION, _UPDATE_METADATA_VERSION = 7, 1, 4  # spoken by both; without broker epochs
_LENGTH = struct.Struct(">i")


class Wire:
    """A blocking connection that sends frames made beforehand."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frame: bytes) -> bytes:
        """Return the answer, without its length."""
        self._socket.sendall(frame)
        (size_bytes,) = _LENGTH.unpack(self._socket.recv(_LENGTH.size, socket.MSG_WAITALL))
        return self._socket.recv(size_bytes, socket.MSG_WAITALL)

    def close(self) -> None:
        self._socket.close()


class SingleRecords:
    """A producer with acks=all of 100-byte records to a topic of one partition; its leader is broker ``leader``."""

    def __init__(self, cluster: Cluster) -> None:
        (partition,) = ask_metadata(cluster, 1, [_TOPIC]).topics[0].partitions
        self.leader = partition.leader_id
        self._wire = Wire(cluster.ports[self.leader])
        batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
        records = produce.ProduceRequestPartition(partition=0, records=batch)
        message = produce.ProduceRequest(
            acks=-1, timeout_ms=30_000, topics=[produce.ProduceRequestTopic(topic=_TOPIC, partitions=[records])]
        )
        self._frame = encode_request(produce.API, _PRODUCE_VERSION, 0, "benchmark", message)

    def send(self) -> float:
        """Milliseconds until the acknowledgement. Raises RuntimeError when the record was refused."""
        started = time.perf_counter()
        answer = self._wire.ask(self._frame)
        elapsed = time.perf_counter() - started
        code = decode_response(produce.API, _PRODUCE_VERSION, answer)[1].topics[0].partitions[0].error_code
        if code:
            raise RuntimeError(f"a record was refused with error {code}")
        return elapsed * 1000

    def close(self) -> None:
        self._wire.close()


def measure(ours: Cluster, kafka: Cluster, rounds: int, share: float) -> list[Figure]:
    """Latency in silence, with ``share`` of the requests."""
    producers = {}
    for cluster in (ours, kafka):
        make_topic(cluster, _TOPIC, 1, 3)
        producers[cluster.name] = SingleRecords(cluster)
        for _ in range(int(WARM_UP_REQUESTS * share)):
            producers[cluster.name].send()
    middle, slowest = alternate(
        rounds,
        ours,
        kafka,
        lambda cluster, _: _percentiles([producers[cluster.name].send() for _ in range(int(REQUESTS * share))]),
    )
    for cluster in (ours, kafka):
        producers[cluster.name].close()
        delete_topic(cluster, _TOPIC)
    title = "single record of 100 B, RF 3, acks=all"
    return [Figure(f"{title}: p50", "ms", *middle), Figure(f"{title}: p99", "ms", *slowest)]


def measure_under_control(ours: Cluster, kafka: Cluster, rounds: int, partitions: int) -> list[Figure]:
    """Measure it while the leader is told roles and metadata of ``partitions`` partitions that it shall lead.

    The measurement plays the controller, so that only the broker's part is measured. The partitions remain behind,
    unknown to ZooKeeper: nothing else can be measured on these clusters afterwards.
    """
    producers, controllers = {}, {}
    for cluster in (ours, kafka):
        make_topic(cluster, _TOPIC, 1, 3)
        producers[cluster.name] = SingleRecords(cluster)
        controllers[cluster.name] = _Controller(cluster, producers[cluster.name].leader, partitions)
        for _ in range(REQUESTS):
            producers[cluster.name].send()
        controllers[cluster.name].prepare()
        controllers[cluster.name].tell()  # the logs are made, and Kafka's code is warm

    def run(cluster: Cluster, _round: int) -> Sequence[float]:
        samples: list[float] = []
        controller = controllers[cluster.name]
        controller.prepare()
        telling = threading.Thread(target=controller.tell)
        started = time.perf_counter()
        telling.start()
        while telling.is_alive():
            samples.append(producers[cluster.name].send())
        return [*_percentiles(samples), time.perf_counter() - started]

    middle, slowest, told = alternate(rounds, ours, kafka, run)
    for cluster in (ours, kafka):
        producers[cluster.name].close()
        controllers[cluster.name].close()
    title = f"the same while the leader is told of {partitions:,} partitions"
    return [
        Figure(f"{title}: p50", "ms", *middle),
        Figure(f"{title}: p99", "ms", *slowest),
        Figure(f"LeaderAndIsr and UpdateMetadata of {partitions:,} partitions, under that load", "s", *told),
    ]


def _percentiles(samples: Sequence[float]) -> tuple[float, float]:
    """p50, p99."""
    ordered = sorted(samples)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]


class _Controller:
    """Gives one broker the lead of many partitions, with one more leader epoch each time."""

    def __init__(self, cluster: Cluster, broker_id: int, partitions: int) -> None:
        self._wire = Wire(cluster.ports[broker_id])
        self._broker_id = broker_id
        self._partitions = range(partitions)
        self._leader_epoch = 0
        self._frames: list[tuple[Api, int, bytes]] = []
        with ZooKeeper(cluster.connect) as zk:
            view = read_cluster(zk, [], states=False)
            node = zk.get(ControllerEpochZnode.PATH)
        if view.controller_id is None or node is None:
            raise RuntimeError(f"{cluster.name} has no controller")
        self._controller_id = view.controller_id
        self._epoch = ControllerEpochZnode.decode(node.data)
        self._metadata = self._update_metadata(list(view.brokers.values()))

    def prepare(self) -> None:
        """Make the frames: Python's work for them shall not be measured."""
        self._frames = [
            (leader_and_isr.API, _LEADER_AND_ISR_VERSION, self._leader_and_isr()),
            (update_metadata.API, _UPDATE_METADATA_VERSION, self._metadata),
        ]
        self._leader_epoch += 1

    def tell(self) -> None:
        """Send them, one after the other."""
        frames, self._frames = self._frames, []
        for api, version, frame in frames:
            _, answer = decode_response(api, version, self._wire.ask(frame))
            if answer.error_code:
                raise RuntimeError(f"{api.name} was refused with error {answer.error_code}")

    def close(self) -> None:
        self._wire.close()

    def _leader_and_isr(self) -> bytes:
        states = [
            leader_and_isr.LeaderAndIsrPartition(
                topic=_WIDE,
                partition=partition,
                controller_epoch=self._epoch,
                leader=self._broker_id,
                leader_epoch=self._leader_epoch,
                isr=[self._broker_id],
                zk_version=0,
                replicas=[self._broker_id],
                is_new=self._leader_epoch == 0,
            )
            for partition in self._partitions
        ]
        message = leader_and_isr.LeaderAndIsrRequest(
            controller_id=self._controller_id, controller_epoch=self._epoch, partition_states=states, live_leaders=[]
        )
        return encode_request(leader_and_isr.API, _LEADER_AND_ISR_VERSION, 0, "controller", message)

    def _update_metadata(self, brokers: Sequence[BrokerInfo]) -> bytes:
        states = [
            update_metadata.UpdateMetadataPartition(
                topic=_WIDE,
                partition=partition,
                controller_epoch=self._epoch,
                leader=self._broker_id,
                leader_epoch=0,
                isr=[self._broker_id],
                zk_version=0,
                replicas=[self._broker_id],
            )
            for partition in self._partitions
        ]
        live = [
            update_metadata.UpdateMetadataBroker(
                id=broker.id,
                endpoints=[
                    update_metadata.UpdateMetadataEndpoint(port=e.port, host=e.host, listener_name=e.listener)
                    for e in broker.endpoints
                ],
            )
            for broker in brokers
        ]
        message = update_metadata.UpdateMetadataRequest(
            controller_id=self._controller_id, controller_epoch=self._epoch, partition_states=states, live_brokers=live
        )
        return encode_request(update_metadata.API, _UPDATE_METADATA_VERSION, 0, "controller", message)
