"""A controller without a broker, on a real ZooKeeper: whose place it takes, what it refuses, what it says to whom."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkatool.broker.controller.standalone import StandaloneController
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import NoPermissionError, RefusedError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages import describe_configs, stop_replica
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponseKey
from kafkatool.core.protocol.messages.describe_configs import (
    DescribeConfigsEntry,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.acls import ALL_RIGHTS, READ, Acl
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    BrokerZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    PartitionStateZnode,
    TopicZnode,
)
from tests.ports import free_port
from tests.stub_broker import StubBroker, register
from tests.waiting import eventually


@pytest.fixture
def alone(zk_connect: str, tmp_path: Path) -> Iterator[StandaloneController]:
    config = BrokerConfig.from_properties(
        {
            "zookeeper.connect": zk_connect,
            "zookeeper.session.timeout.ms": "60000",
            "kt.log.dir": str(tmp_path),
            "unclean.leader.election.enable": "false",
        }
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


@pytest.mark.spec("CTL-53", "CTL-54")
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


@pytest.mark.spec("Z-2")
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


@pytest.mark.spec("SEC-39")
@pytest.mark.parametrize("listener", ["SASL_SSL", "PLAINTEXT"])
def test_nobody_is_deposed_where_no_broker_would_hear_it(
    base: ZooKeeper, alone: StandaloneController, listener: str
) -> None:
    """One has no listener of ours, at the other's nobody answers."""
    base.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)
    address = f"{listener}://127.0.0.1:{free_port()}"
    data = (
        f'{{"listener_security_protocol_map":{{"{listener}":"{listener}"}},"endpoints":["{address}"],'
        '"jmx_port":-1,"port":-1,"host":null,"version":4,"timestamp":"1"}'
    )
    base.create(BrokerZnode.path(1), data.encode(), ephemeral=True)
    told = "no listener PLAINTEXT but SASL_SSL" if listener == "SASL_SSL" else "cannot connect to 127.0.0.1"
    with pytest.raises(RefusedError, match=f"no broker could be told anything: broker 1.* {told}"):
        alone.start(take_over=True)
    assert rules(base) == 1


@pytest.mark.spec("SEC-39")
@pytest.mark.parametrize("one_obeys", [False, True])
def test_who_may_not_tell_brokers_what_to_do_deposes_nobody(
    base: ZooKeeper, alone: StandaloneController, caplog: pytest.LogCaptureFixture, one_obeys: bool
) -> None:
    """Each is asked; where one obeys, those that do not are warned of."""
    base.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)
    made = [StubBroker(), StubBroker(), StubBroker()]
    with contextlib.ExitStack() as stack:
        for number, broker in enumerate(made, 1):
            stack.callback(broker.close)
            code = (
                ErrorCode.STALE_CONTROLLER_EPOCH
                if one_obeys and number == 3
                else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            broker.answers[stop_replica.API.key] = StopReplicaResponse(error_code=code, partitions=[])
            register(base, number, broker.port)
        if not one_obeys:
            with pytest.raises(RefusedError, match=r"broker 1: .* lacks ClusterAction.*; broker 2.*; broker 3"):
                alone.start(take_over=True)
            assert rules(base) == 1
        else:
            alone.start(take_over=True)
            assert rules(base) == 900
            warned = [m for m in caplog.messages if m.endswith("it will not hear this controller")]
            assert [m.partition(":")[0] for m in warned] == ["broker 1", "broker 2"]
        for broker in made:
            first = broker.requests[0]
            assert first == (
                0,
                StopReplicaRequest(controller_id=-1, controller_epoch=0, delete_partitions=False, partitions=[]),
            )


@pytest.mark.spec("SEC-39", "SEC-25")
@pytest.mark.parametrize(
    "lacking", ["/brokers/topics/t", "/brokers/topics/t/partitions/0/state", "/controller_epoch", "/"]
)
def test_who_may_not_write_what_a_controller_writes_deposes_nobody(
    base: ZooKeeper, alone: StandaloneController, lacking: str
) -> None:
    base.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)
    base.create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(7))
    base.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
    state = PartitionStateZnode.encode(LeaderAndIsr(1, 0, (1,), 0))
    base.create(PartitionStateZnode.path(TopicPartition("t", 0)), state, make_parents=True)
    base.set_acls(lacking, [Acl(READ, "world", "anyone"), Acl(ALL_RIGHTS, "digest", "ops:x")])
    with pytest.raises(NoPermissionError):
        alone.start(take_over=True)
    assert rules(base) == 1
    epoch = base.get(ControllerEpochZnode.PATH)
    assert epoch is not None and ControllerEpochZnode.decode(epoch.data) == 7


def test_the_id_of_a_broker_is_refused(base: ZooKeeper, alone: StandaloneController) -> None:
    register(base, 900, 9092)
    with pytest.raises(RefusedError, match="900 is the id of a registered broker"):
        alone.start(take_over=True)


@pytest.mark.spec("Z-11")
def test_without_an_id_it_gets_one_that_no_broker_gets(base: ZooKeeper, zk_connect: str, tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(
        {
            "zookeeper.connect": zk_connect,
            "kt.log.dir": str(tmp_path),
            "broker.id": "1",
            "unclean.leader.election.enable": "false",
        }
    )
    with StandaloneController(config) as alone:
        assert rules(base) == alone.broker_id == 1001


UNCLEAN = "unclean.leader.election.enable"
KEYS = (4, 5, 6)  # of the requests that a controller sends
Brokers = Callable[..., list[StubBroker]]


@pytest.fixture
def brokers(base: ZooKeeper) -> Iterator[Brokers]:
    """Makes registered brokers 1, 2 ... that have that value; None: of Kafka 0.10.2; "refused": who do not tell."""
    made: list[StubBroker] = []

    def make(*values: str | None) -> list[StubBroker]:
        for number, value in enumerate(values, 1):
            broker = StubBroker()
            made.append(broker)
            keys = KEYS if value is None else (*KEYS, describe_configs.API.key)
            broker.api_keys = [ApiVersionsResponseKey(api_key=k, min_version=0, max_version=0) for k in keys]
            entry = DescribeConfigsEntry(name=UNCLEAN, value=value, read_only=True, is_default=True)
            result = DescribeConfigsResult(resource_type=4, resource_name=str(number), configs=[entry])
            if value == "refused":
                result = DescribeConfigsResult(error_code=29, resource_type=4, resource_name=str(number))
            broker.answers[describe_configs.API.key] = DescribeConfigsResponse(results=[result])
            register(base, number, broker.port)
        return made

    yield make
    for broker in made:
        broker.close()


def untold(connect: str, directory: Path, **properties: str) -> StandaloneController:
    """A controller that was not told whether unclean leaders may be elected."""
    names = {k.replace("_", "."): v for k, v in properties.items()}
    given = {"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "60000", "kt.log.dir": str(directory)}
    return StandaloneController(BrokerConfig.from_properties(given | names), broker_id=900)


@pytest.mark.spec("CTL-43", "CTL-44")
@pytest.mark.parametrize("value", ["false", "true"])
@pytest.mark.parametrize("override", [None, "false", "true"])
def test_an_unclean_leader_is_elected_only_where_brokers_or_the_topic_allow_it(
    base: ZooKeeper, brokers: Brokers, zk_connect: str, tmp_path: Path, value: str, override: str | None
) -> None:
    """Kafka's default since 0.11 is false, and stands in no file: a controller that assumed its own lost records."""
    brokers(value, "refused")
    lost, led = TopicPartition("t", 0), TopicPartition("u", 0)
    for partition, leader in ((lost, 7), (led, 2)):
        base.create(TopicZnode.path(partition.topic), TopicZnode({0: (leader, 1)}).encode())
        base.create(
            PartitionStateZnode.path(partition),
            PartitionStateZnode.encode(LeaderAndIsr(leader, 0, (leader,), 0)),
            make_parents=True,
        )
    if override is not None:
        base.create(ConfigZnode.path("topics", "t"), ConfigZnode.encode({UNCLEAN: override}))
    with untold(zk_connect, tmp_path) as alone:
        assert alone.controller.is_active
        node = base.get(PartitionStateZnode.path(lost))
        assert node is not None
        allowed = (override or value) == "true"
        assert PartitionStateZnode.decode(lost, node.data).leader == (1 if allowed else 7)


@pytest.mark.spec("CTL-44")
def test_each_broker_is_asked_for_its_own_value_and_what_they_have_is_said(
    brokers: Brokers, zk_connect: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    asked = brokers("false", "false", None)
    with untold(zk_connect, tmp_path):
        pass
    assert f"{UNCLEAN}=false, as brokers 1, 2 have it" in caplog.messages
    assert f"broker 3 does not tell its {UNCLEAN}" in caplog.messages
    for number, broker in enumerate(asked[:2], 1):
        (request,) = [m for _, m in broker.requests if isinstance(m, DescribeConfigsRequest)]
        (resource,) = request.resources
        assert (resource.resource_type, resource.resource_name) == (4, str(number))
        assert resource.configuration_keys == [UNCLEAN]


@pytest.mark.spec("CTL-44")
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ((), "no broker could be asked"),
        ((None, None), "no broker could be asked"),
        (("refused",), "no broker could be asked"),
        (("true", "false", "false"), "true at brokers 1 and false at 2, 3"),
    ],
    ids=["no brokers", "0.10.2", "refused", "mixed"],
)
@pytest.mark.parametrize("given", [None, "false"])
def test_it_must_be_told_where_it_cannot_be_known(
    base: ZooKeeper,
    brokers: Brokers,
    zk_connect: str,
    tmp_path: Path,
    values: tuple[str | None, ...],
    why: str,
    given: str | None,
) -> None:
    brokers(*values)
    if given is None:
        with pytest.raises(RefusedError, match=why) as refused:
            untold(zk_connect, tmp_path).start(take_over=True)
        assert refused.value.now is not None and f"-o {UNCLEAN}=false" in refused.value.now
        assert rules(base) is None
    else:
        with untold(zk_connect, tmp_path, **{UNCLEAN: given}) as alone:
            assert alone.controller.is_active


@pytest.mark.spec("CTL-44")
def test_a_broker_that_is_gone_does_not_hinder_it(
    base: ZooKeeper, brokers: Brokers, zk_connect: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    brokers("false", "false")[0].close()
    with untold(zk_connect, tmp_path) as alone:
        assert alone.controller.is_active
    assert f"broker 1 cannot be asked for {UNCLEAN}" in caplog.text
