"""Real Kafka goes on with a move that this broker began, and this broker with one of Kafka's."""

import shutil
from pathlib import Path

import pytest

from kafkatool.broker.storage.log.log import Log
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.values import LeaderAndIsr
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import alter_replica_log_dirs
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ConfigZnode, PartitionStateZnode
from tests.broker.replication.moving.steps import CHUNK, A, go_on, managed, moving, plain_dirs, written
from tests.broker.storage.logs import everything
from tests.compat.real_kafka import RealKafka, require, versions
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_BROKER = 1


def _ask(real: RealKafka, path: Path) -> int:
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[
            alter_replica_log_dirs.AlterReplicaLogDir(
                path=str(path),
                topics=[alter_replica_log_dirs.AlterReplicaLogDirsTopic(topic=A.topic, partitions=[A.partition])],
            )
        ]
    )
    with Connection("127.0.0.1", real.ports[_BROKER], client_id="test", timeout_ms=90_000, security=None) as connection:
        (topic,) = connection.send(alter_replica_log_dirs.API, 0, request).results
    return topic.partitions[0].error_code


def _kept(log: Log) -> tuple[bytes, list[tuple[int, int]]]:
    return everything(log), log.leader_epochs.entries


@pytest.mark.spec("ADM-69")
@pytest.mark.parametrize("version", versions("2.8.2", "1.1.1"))
def test_a_move_changes_hands_between_this_broker_and_kafka_and_back(tmp_path: Path, version: str) -> None:
    require(version)
    dirs = tmp_path / "1", tmp_path / "2"
    options = {
        "log.dirs": ",".join(map(str, dirs)),
        "log.cleaner.enable": "false",
        "log.retention.ms": "-1",
        "log.segment.delete.delay.ms": "0",
    }
    real = RealKafka(version, tmp_path / "real", brokers=1, options=options)
    with real, ZooKeeper(real.connect) as zk:
        real.stop_broker(_BROKER)
        for path in dirs:
            shutil.rmtree(path)
        with managed(tmp_path) as manager:
            written(manager)
            move = moving(manager, dirs[1])
            for _ in range(4):
                move.advance(manager, CHUNK)
            log = manager.get(A)
            assert log is not None
            expected, begun = _kept(log), move.copy.log.log_end_offset
            assert 0 < begun < log.log_end_offset
            log.flush()
        create_topic(zk, A.topic, {A.partition: (_BROKER,)}, {"retention.ms": "-1", "segment.bytes": "300"})
        state = PartitionStateZnode.encode(LeaderAndIsr(None, expected[1][-1][0], (_BROKER,), 1))
        zk.create(PartitionStateZnode.path(A), state, make_parents=True)
        real.start_broker(_BROKER)
        eventually(lambda: plain_dirs(tmp_path) == ["2/a-0"], "Kafka to end the move", 120)
        real.stop_broker(_BROKER)
        with managed(tmp_path) as manager:
            moved = manager.get(A)
            assert moved is not None and moved.directory == dirs[1] / "a-0"
            assert everything(moved) == expected[0]

        rate = {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}
        zk.create(ConfigZnode.path("brokers", str(_BROKER)), ConfigZnode.encode(rate), make_parents=True)
        real.start_broker(_BROKER)
        eventually(lambda: _ask(real, dirs[0]) == ErrorCode.NONE, "Kafka to begin the way back", 120)
        real.kill_broker(_BROKER)
        (copied,) = (dirs[0]).glob("a-0.*-future")
        assert plain_dirs(tmp_path) == ["2/a-0"]
        with managed(tmp_path) as manager:
            copy = manager.copy_of(A)
            assert copy is not None and copy.directory == copied
            go_on(moving(manager, dirs[0]), manager)
            back = manager.get(A)
            assert back is not None and everything(back) == expected[0]
        assert plain_dirs(tmp_path) == ["1/a-0"]
        eventually(lambda: zk.get(BrokerZnode.path(_BROKER)) is None, "the session of the killed broker to end")
        real.start_broker(_BROKER)
        real.stop_broker(_BROKER)
        with managed(tmp_path) as manager:
            back = manager.get(A)
            assert back is not None and everything(back) == expected[0]
