"""Registration, identity, producer ids and dynamic config, against a real ZooKeeper."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue

import pytest

from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.registration.identity import establish_identity
from kafkatool.broker.registration.registration import Registration, make_base_paths, with_real_address
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.dynamic import EXPIRY_MS, DynamicConfig, read_overrides
from kafkatool.broker.settings.overrides import TopicOverrides, topics_in
from kafkatool.broker.storage.directories.meta_properties import write_meta_properties
from kafkatool.core.errors import ConfigError, KafkatoolError
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    PERSISTENT_PATHS,
    BrokerZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ProducerIdBlockZnode,
)
from tests.broker.network.raw_client import wait_until
from tests.core.zookeeper.sessions import end_session

INFO = BrokerInfo(3, (Endpoint("PLAINTEXT", "h", 9092), Endpoint("INNER", "::1", 9093)), "rack-a")


def health(zk: ZooKeeper, **more: Callable[[], None]) -> Registration:
    return Registration(zk, INFO, session_timeout_ms=500, **more)


@pytest.mark.spec("Z-4")
def test_base_paths_are_made_once_and_found_again(zk: ZooKeeper) -> None:
    make_base_paths(zk)
    make_base_paths(zk)
    assert all(node is not None for node in zk.get_many(PERSISTENT_PATHS))


@pytest.mark.spec("BRK-120", "Z-8")
def test_a_registration_is_ephemeral_and_its_czxid_the_broker_epoch(base: ZooKeeper) -> None:
    registered = health(base)
    registered.start()
    node = base.get(BrokerZnode.path(3))
    assert node is not None
    assert node.ephemeral_owner == base.session_id
    assert registered.broker_epoch == node.czxid
    value = json.loads(node.data)
    assert value.pop("timestamp").isdecimal()
    assert value == {
        "version": 4,
        "host": "h",
        "port": 9092,
        "jmx_port": -1,
        "endpoints": ["PLAINTEXT://h:9092", "INNER://[::1]:9093"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "INNER": "PLAINTEXT"},
        "rack": "rack-a",
    }
    registered.stop()


@pytest.mark.spec("BRK-121", "Z-10")
def test_an_id_held_by_another_session_is_retried_then_refused(base: ZooKeeper, zk_connect: str) -> None:
    with ZooKeeper(zk_connect) as other:
        other.create(BrokerZnode.path(3), b"{}", ephemeral=True)
        with pytest.raises(KafkatoolError, match="broker id 3 is in use"):
            health(base).start()
        leaving = threading.Timer(0.2, lambda: other.delete(BrokerZnode.path(3)))
        leaving.start()
        patient = Registration(base, INFO, session_timeout_ms=60_000)
        patient.start()
        leaving.join()
        assert patient.broker_epoch is not None
        patient.stop()


@pytest.mark.spec("BRK-121", "Z-10")
def test_a_node_of_the_own_session_counts_as_success(base: ZooKeeper) -> None:
    first = health(base)
    first.start()
    second = health(base)
    second.start()
    assert first.broker_epoch == second.broker_epoch
    first.stop()
    second.stop()


@pytest.mark.spec("BRK-122", "Z-10")
def test_a_new_session_registers_again_over_the_remnant_of_the_old_one(base: ZooKeeper, zk_connect: str) -> None:
    told: SimpleQueue[None] = SimpleQueue()
    with ZooKeeper(zk_connect, session_timeout_ms=60_000) as session:
        registered = health(session, on_new_session=lambda: told.put(None))
        registered.start()
        before = registered.broker_epoch
        former = session.session_id
        end_session(session.connect, lambda: session.session_id)
        told.get(timeout=60)
        wait_until(lambda: registered.broker_epoch != before)
        node = base.get(BrokerZnode.path(3))
        assert node is not None and node.czxid == registered.broker_epoch
        assert node.ephemeral_owner == session.session_id != former
        registered.stop()


@pytest.mark.spec("Z-9", "BRK-6")
def test_port_0_and_an_empty_host_are_filled_in_before_registering() -> None:
    bound = (Endpoint("PLAINTEXT", "", 4321), Endpoint("INNER", "", 4322))
    assert with_real_address(Endpoint("INNER", "h", 0), bound) == Endpoint("INNER", "h", 4322)
    assert with_real_address(Endpoint("PLAINTEXT", "", 80), bound).port == 80
    assert with_real_address(Endpoint("PLAINTEXT", "", 80), bound).host


# --- identity --------------------------------------------------------------------------------------------------------


def config(tmp_path: Path, **more: str) -> BrokerConfig:
    dirs = [tmp_path / "a", tmp_path / "b"]
    for directory in dirs:
        directory.mkdir(exist_ok=True)
    given = {"zookeeper.connect": "unused:1", "log.dirs": ",".join(map(str, dirs))}
    return BrokerConfig.from_properties(given | {k.replace("_", "."): v for k, v in more.items()})


@pytest.mark.spec("BRK-124", "Z-11", "Z-31")
def test_ids_are_generated_above_the_reserved_ones_and_kept(base: ZooKeeper, tmp_path: Path) -> None:
    first = establish_identity(base, config(tmp_path))
    assert first.broker_id == 1001
    assert len(first.cluster_id) == 22
    assert establish_identity(base, config(tmp_path, reserved_broker_max_id="5000")).broker_id == 5002
    write_meta_properties(tmp_path / "b", 1001, first.cluster_id)
    assert establish_identity(base, config(tmp_path)) == first
    assert establish_identity(base, config(tmp_path, broker_id="1001")) == first


@pytest.mark.spec("BRK-124", "BRK-149")
def test_ids_that_contradict_each_other_stop_the_start(base: ZooKeeper, tmp_path: Path) -> None:
    settings = config(tmp_path)
    write_meta_properties(tmp_path / "a", 1, "x" * 22)
    with pytest.raises(ConfigError, match=r"log\.dirs hold data of cluster x"):
        establish_identity(base, settings)
    write_meta_properties(tmp_path / "a", 1, establish_cluster(base))
    with pytest.raises(ConfigError, match=r"broker\.id=2, but log\.dirs hold the data of broker 1"):
        establish_identity(base, config(tmp_path, broker_id="2"))
    write_meta_properties(tmp_path / "b", 7, None)
    with pytest.raises(ConfigError, match="different owners"):
        establish_identity(base, settings)


def establish_cluster(zk: ZooKeeper) -> str:
    from kafkatool.broker.registration.registration import get_or_create_cluster_id

    return get_or_create_cluster_id(zk)


@pytest.mark.spec("BRK-124")
def test_without_an_id_and_without_generation_the_start_is_refused(base: ZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.id is missing"):
        establish_identity(base, config(tmp_path, broker_id_generation_enable="false"))


# --- producer ids ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-163")
def test_producer_ids_come_from_blocks_that_no_two_brokers_share(base: ZooKeeper) -> None:
    one, two = ProducerIds(base, 1), ProducerIds(base, 2)
    assert [one.next_id(), two.next_id(), one.next_id()] == [0, 1000, 1]
    for _ in range(998):
        one.next_id()
    assert one.next_id() == 2000
    node = base.get(ProducerIdBlockZnode.PATH)
    assert node is not None and ProducerIdBlockZnode.decode(node.data) == (1, 2000, 2999)


@pytest.mark.spec("BRK-163")
def test_brokers_asking_at_once_get_different_blocks(base: ZooKeeper) -> None:
    firsts: SimpleQueue[int] = SimpleQueue()
    threads = [threading.Thread(target=lambda b=b: firsts.put(ProducerIds(base, b).next_id())) for b in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts.get() for _ in range(5)) == [0, 1000, 2000, 3000, 4000]


# --- dynamic config --------------------------------------------------------------------------------------------------


def announce(zk: ZooKeeper, entity_path: str | bytes) -> str:
    data = entity_path if isinstance(entity_path, bytes) else ConfigChangeZnode.encode(entity_path)
    return zk.create(ConfigChangeZnode.PREFIX, data, sequential=True)


@pytest.mark.spec("BRK-125", "Z-27", "Z-28")
def test_changes_are_applied_in_order_and_a_bad_one_does_not_block_later_ones(base: ZooKeeper) -> None:
    seen: SimpleQueue[tuple[str, str, Mapping[str, str]]] = SimpleQueue()

    def on(kind: str) -> Callable[[str, Mapping[str, str]], None]:
        def note(name: str, overrides: Mapping[str, str]) -> None:
            seen.put((kind, name, overrides))
            if name == "fails":
                raise ValueError("on purpose")

        return note

    base.create(ConfigZnode.path("topics", "early"), ConfigZnode.encode({"a": "1"}))
    announce(base, "topics/early")
    following = DynamicConfig(base, {"topics": on("topics"), "brokers": on("brokers"), "clients": on("clients")})
    following.start()
    assert seen.get(timeout=60) == ("topics", "early", {"a": "1"})
    base.create(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"b": "2"}))
    base.create(ConfigZnode.path("clients", "c d"), ConfigZnode.encode({"q": "3"}))
    version_1 = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    for notification in (b"{not json", "nonsense/x", "topics/fails", version_1):
        announce(base, notification)
    announce(base, ConfigZnode.entity_path("clients", "c d"))
    announce(base, "brokers/1")
    assert [seen.get(timeout=60) for _ in range(4)] == [
        ("topics", "fails", {}),
        ("topics", "t", {"b": "2"}),
        ("clients", "c%20d", {"q": "3"}),
        ("brokers", "1", {}),
    ]
    following.new_session()
    assert seen.get(timeout=60)[1] == "early"
    following.stop()


@pytest.mark.spec("Z-29")
def test_notifications_older_than_15_minutes_are_removed(base: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    announce(base, "topics/t")
    now = time.time()
    following = DynamicConfig(base, {})
    following.start()
    assert len(base.children(ConfigChangeZnode.PATH) or []) == 1
    monkeypatch.setattr(time, "time", lambda: now + EXPIRY_MS / 1000 + 1)
    following.new_session()
    wait_until(lambda: not base.children(ConfigChangeZnode.PATH))
    following.stop()


@pytest.mark.spec("BRK-125", "Z-25")
def test_overrides_are_read_once_and_then_follow_changes(base: ZooKeeper, tmp_path: Path) -> None:
    for name in ("t-0", "t-1", "a-b-0", "t-0.abc-delete", "notes"):
        (tmp_path / name).mkdir()
    assert topics_in([tmp_path, tmp_path / "none"]) == {"t", "a-b"}
    path = ConfigZnode.path("topics", "t")
    base.create(path, ConfigZnode.encode({"x": "1"}))
    base.create(ConfigZnode.path("topics", "bad"), b"{")
    overrides = TopicOverrides(base)
    overrides.preload(["t", "a-b", "bad"])
    assert (overrides.of("t"), overrides.of("a-b"), overrides.of("bad")) == ({"x": "1"}, {}, {})
    base.set(path, ConfigZnode.encode({"x": "2"}), 0)
    assert overrides.of("t") == {"x": "1"}
    overrides.put("t", {"x": "2"})
    assert overrides.of("t") == {"x": "2"}
    base.set(path, ConfigZnode.encode({"x": "3"}), 1)
    overrides.forget([TopicPartition("t", 0)])
    assert overrides.of("t") == {"x": "3"} == read_overrides(base, "topics", "t")
