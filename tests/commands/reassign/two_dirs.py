"""Brokers with two log dirs each, in this process."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner, Result

from kafkatool.broker.server import Broker
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.commands.main import kt
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import produce
from kafkatool.core.protocol.records.batches import Record, encode_batch
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.steady import LASTING
from tests.waiting import eventually

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TP = TopicPartition("t", 0)


class Cluster:
    """Brokers 1 to 3, each with the log dirs ``a`` and ``b``."""

    def __init__(self, brokers: Sequence[Broker], directory: Path, zk: ZooKeeper, connect: str) -> None:
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.directory = directory
        self.zk = zk
        self.zookeeper = connect

    def run(self, mode: str, *args: object) -> Result:
        bootstrap = f"127.0.0.1:{self.brokers[1].port}"
        return CliRunner().invoke(kt, ["reassign", "--bootstrap-server", bootstrap, f"--{mode}", *map(str, args)])

    def dir_of(self, broker: int, name: str) -> Path:
        return self.directory / f"{broker}-{name}"

    def lies_in(self, broker: int, partition: TopicPartition = TP) -> Path:
        (found,) = (p.parent for n in "ab" for p in self.dir_of(broker, n).glob(str(partition)))
        return found

    def other(self, broker: int) -> Path:
        return next(self.dir_of(broker, n) for n in "ab" if self.dir_of(broker, n) != self.lies_in(broker))

    def plan(self, replicas: Sequence[int], dirs: Sequence[Any]) -> Path:
        file = self.directory / "plan.json"
        entry = {"topic": "t", "partition": 0, "replicas": replicas, "log_dirs": [str(d) for d in dirs]}
        file.write_bytes(orjson.dumps({"version": 1, "partitions": [entry]}))
        return file

    def rates(self) -> dict[int, str]:
        nodes = {b: self.zk.get(f"/config/brokers/{b}") for b in self.brokers}
        found = {b: orjson.loads(node.data)["config"].get(RATE) for b, node in nodes.items() if node is not None}
        return {b: rate for b, rate in found.items() if rate is not None}

    def hold_back(self, broker: int, rate: int) -> None:
        """Have the broker go by a rate from now on: it learns of its config a while after that was written."""
        self.brokers[broker]._replica_manager.moves.set_rate(rate)  # noqa: SLF001

    def write(self, batches: int) -> None:
        with Connection("127.0.0.1", self.brokers[1].port, client_id="test", timeout_ms=90_000, security=None) as one:
            for _ in range(batches):
                now_ms = int(time.time() * 1000)  # retention takes what is of 1970
                records = bytes(encode_batch([Record(0, now_ms, b"k", bytes(10_000), ())]))
                part = produce.ProduceRequestPartition(partition=0, records=records)
                request = produce.ProduceRequest(
                    acks=1, timeout_ms=60_000, topics=[produce.ProduceRequestTopic(topic="t", partitions=[part])]
                )
                eventually(
                    partial(self._takes, one, request), "broker 1, whose log is made before it leads, to take it"
                )

    def _takes(self, connection: Connection, request: produce.ProduceRequest) -> bool:
        return connection.send(produce.API, 3, request).topics[0].partitions[0].error_code == 0


@contextmanager
def started(zk: ZooKeeper, zk_connect: str, directory: Path) -> Iterator[Cluster]:
    """Give the brokers, and the topic ``t`` with 60 batches on brokers 1 and 2."""
    with ExitStack() as stack:
        brokers = []
        for broker in (1, 2, 3):
            options = {
                **LASTING,
                "zookeeper.connect": zk_connect,
                "broker.id": str(broker),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": ",".join(str(directory / f"{broker}-{name}") for name in "ab"),
                "kt.log.dir": str(directory / f"logs-{broker}"),
                "log.segment.delete.delay.ms": "0",
                "controlled.shutdown.enable": "false",
            }
            brokers.append(stack.enter_context(Broker(BrokerConfig.from_properties(options))))
        made = Cluster(brokers, directory, zk, zk_connect)
        create_topic(zk, "t", {0: (1, 2)})
        eventually(lambda: brokers[0].port > 0 and any(directory.glob("1-?/t-0")), "the leader to be made")
        eventually(lambda: any(directory.glob("2-?/t-0")), "the follower to be made")
        made.write(60)
        yield made
