"""AlterReplicaLogDirs, and what DescribeLogDirs tells of it, over the replication of a broker on two log dirs."""

from pathlib import Path

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.core.protocol.messages import alter_replica_log_dirs as api
from kafkatool.core.protocol.messages import describe_log_dirs
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import TP, world
from tests.waiting import eventually

SERVED = {key: load_handlers()[key] for key in (34, 35)}


def alter(client: Client, version: int, *moves: tuple[Path, str, list[int]]) -> dict[tuple[str, int], int]:
    request = api.AlterReplicaLogDirsRequest(
        dirs=[
            api.AlterReplicaLogDir(
                path=str(path), topics=[api.AlterReplicaLogDirsTopic(topic=topic, partitions=numbers)]
            )
            for path, topic, numbers in moves
        ]
    )
    results = client.call(api.API, version, request).results
    return {(t.topic, p.partition): p.error_code for t in results for p in t.partitions}


def told(client: Client, version: int) -> dict[tuple[str, bool], int]:
    """Return by log dir, and whether the replica is on its way there, what it lacks."""
    results = client.call(describe_log_dirs.API, version, describe_log_dirs.DescribeLogDirsRequest(topics=None)).results
    return {(r.log_dir, p.is_future_key): p.offset_lag for r in results for t in r.topics for p in t.partitions}


@pytest.mark.spec("ADM-68", "ADM-69", "ADM-61", "ADM-82")
@pytest.mark.parametrize("version", range(3))
def test_a_replica_moves_and_both_directories_tell_of_it_meanwhile(tmp_path: Path, version: int) -> None:
    dirs = tmp_path / "1", tmp_path / "2"
    with world(tmp_path, log_dirs=",".join(map(str, dirs))) as made:
        log = made.lead().log
        for _ in range(9):
            made.produce(count=2)
        made.know(TP)
        here = log.directory.parent
        there = next(path for path in dirs if path != here)
        made.manager.on_broker_config({"replica.alter.log.dirs.io.max.bytes.per.second": "0"})
        with broker_of(SERVED, handler_context(log_manager=made.logs, replica_manager=made.manager)) as client:
            answers = alter(client, version, (there, "t", [0, 7]), (tmp_path / "3", "u", [1]))
            assert answers == {("t", 0): 0, ("t", 7): 3, ("u", 1): 57}
            copy = made.logs.copy_of(TP)
            assert copy is not None
            eventually(lambda: copy.log_end_offset == 2, "the first batch")
            assert told(client, version) == {(str(here), False): 0, (str(there), True): 16}
            made.manager.on_broker_config({})
            eventually(lambda: told(client, version) == {(str(there), False): 0}, "the move to end")
            assert alter(client, version, (here, "t", [0]), (there, "t", [0])) == {("t", 0): 0}
            assert made.logs.copies() == [], "of a replica named twice the last place counts"
