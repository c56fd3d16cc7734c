"""A controller without a broker, on a real ZooKeeper: whose place it takes, what it refuses, what it says to whom."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.controller.standalone import StandaloneController
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import RefusedError
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponseKey
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    BrokerZnode,
    ControllerEpochZnode,
    ControllerZnode,
    TopicZnode,
)
from tests.stub_broker import StubBroker, register
from tests.waiting import eventually


@pytest.fixture
def alone(zk_connect: str, tmp_path: Path) -> Iterator[StandaloneController]:
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": zk_connect, "zookeeper.session.timeout.ms": "60000", "kt.log.dir": str(tmp_path)}
    )
    found = StandaloneController(config, broker_id=900)
    yield found
    found.stop()


def rules(zk: ZooKeeper) -> int | None:
    node = zk.get(ControllerZnode.PATH)
    return ControllerZnode.decode(node.data) if node else None


@pytest.mark.spec("CTL-3", "CTL-8", "CTL-22")
def test_it_waits_its_turn_and_gives_the_place_back(base: ZooKeeper, alone: StandaloneController) -> None:
    base.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)
    alone.start()
    assert not alone.controller.is_active and alone.controller.active_controller_id == 1
    base.delete(ControllerZnode.PATH)
    eventually(lambda: alone.controller.is_active, "it to rule")
    assert rules(base) == 900
    alone.stop()
    assert rules(base) is None


@pytest.mark.spec("CTL-9", "CTL-10", "Z-18", "Z-19")
@pytest.mark.parametrize("epoch", [None, 7])
def test_it_takes_the_place_of_another_at_once(base: ZooKeeper, alone: StandaloneController, epoch: int | None) -> None:
    if epoch is not None:
        base.create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(epoch))
        base.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)
    alone.start(take_over=True)
    assert alone.controller.is_active and rules(base) == 900
    assert alone.controller.epoch == (epoch or 0) + 1


@pytest.mark.spec("CTL-49", "CTL-117")
@pytest.mark.parametrize(
    ("known", "sent"), [((0, 3, 0), (0, 3, 0)), ((1, 4, 0), (1, 4, 0)), ((5, 7, 3), (2, 5, 1))],
    ids=["0.10.2", "1.1", "2.8"],
)  # fmt: skip
def test_a_broker_gets_versions_that_it_knows(
    base: ZooKeeper, alone: StandaloneController, known: tuple[int, int, int], sent: tuple[int, int, int]
) -> None:
    broker = StubBroker()
    broker.api_keys = [
        ApiVersionsResponseKey(api_key=key, min_version=0, max_version=newest)
        for key, newest in zip((4, 6, 5), known, strict=True)
    ]
    try:
        register(base, 1, broker.port)
        alone.start()
        base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
        both = {"LeaderAndIsrRequest", "UpdateMetadataRequest"}
        eventually(lambda: both <= broker.versions().keys(), "the broker to be told")
        assert broker.versions()["LeaderAndIsrRequest"] == {sent[0]}
        assert broker.versions()["UpdateMetadataRequest"] == {sent[1]}
    finally:
        broker.close()


@pytest.mark.spec("Z-2", "CTL-1")
def test_what_is_no_cluster_is_refused(zk_connect: str, zk: ZooKeeper, alone: StandaloneController) -> None:
    with pytest.raises(RefusedError, match=BrokersZnode.PATH):
        alone.start()


@pytest.mark.spec("BRK-4")
def test_brokers_that_leave_the_isr_to_the_controller_are_refused(base: ZooKeeper, alone: StandaloneController) -> None:
    """Those of inter.broker.protocol.version >= 2.7 register with version 5."""
    data = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
        b'"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1"}'
    )
    base.create(BrokerZnode.path(4), data, ephemeral=True)
    with pytest.raises(RefusedError, match=r"brokers 4 have .* 2\.7 or newer"):
        alone.start()
    assert rules(base) is None


@pytest.mark.spec("CTL-1")
def test_the_id_of_a_broker_is_refused(base: ZooKeeper, alone: StandaloneController) -> None:
    register(base, 900, 9092)
    with pytest.raises(RefusedError, match="900 is the id of a registered broker"):
        alone.start(take_over=True)


@pytest.mark.spec("Z-11")
def test_without_an_id_it_gets_one_that_no_broker_gets(base: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": zk_connect, "kt.log.dir": str(tmp_path), "broker.id": "1"}
    )
    with StandaloneController(config) as alone:
        assert rules(base) == alone.broker_id == 1001
