"""Registration, identity, producer ids and dynamic config, against a real ZooKeeper."""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.registration import registration
from kafkatool.broker.registration.identity import establish_identity
from kafkatool.broker.registration.registration import (
    Registration,
    generate_broker_id,
    get_or_create_cluster_id,
    make_base_paths,
    with_real_address,
)
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.dynamic import EXPIRY_MS, DynamicConfig, read_overrides
from kafkatool.broker.settings.overrides import TopicOverrides, topics_in
from kafkatool.broker.storage.directories.meta_properties import write_meta_properties
from kafkatool.core.errors import ConfigError, KafkatoolError
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.zookeeper.session import Delete, Node, Op, SessionState, Watch, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ProducerIdBlockZnode,
)
from tests.broker.network.raw_client import wait_until
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.core.zookeeper.sessions import end_session

INFO = BrokerInfo(3, (Endpoint("PLAINTEXT", "h", 9092), Endpoint("INNER", "::1", 9093)), "rack-a")


def health(zk: ZooKeeper, **more: Callable[[], None]) -> Registration:
    return Registration(zk, INFO, session_timeout_ms=500, **more)


@pytest.mark.spec("Z-4")
def test_base_paths_are_made_once_and_found_again(zk: ZooKeeper) -> None:
    make_base_paths(zk)
    make_base_paths(zk)
    wanted = {
        "/consumers", "/brokers/ids", "/brokers/topics", "/brokers/seqid", "/config/changes", "/config/topics",
        "/config/clients", "/config/users", "/config/brokers", "/admin/delete_topics", "/isr_change_notification",
        "/log_dir_event_notification", "/latest_producer_id_block",
    }  # fmt: skip
    made = tree(zk)
    assert made.keys() == wanted | {"/brokers", "/config", "/admin"}
    assert all((n.data, n.ephemeral_owner, n.version) == (b"", 0, 0) for n in made.values()), "empty, and for good"


def tree(zk: ZooKeeper, path: str = "/") -> dict[str, Node]:
    """Return every node below that one."""
    below = [f"{path.rstrip('/')}/{name}" for name in zk.children(path) or []]
    found = {child: node for child, node in zip(below, zk.get_many(below), strict=True) if node is not None}
    return found | {p: n for child in below for p, n in tree(zk, child).items()}


@pytest.mark.spec("CTL-19", "Z-10", "BRK-122")
def test_a_node_left_by_the_own_expired_session_is_deleted_and_made_again() -> None:
    ensemble = MemoryEnsemble()
    session = MemoryZooKeeper(ensemble)
    prepared: list[bool] = []

    def prepare() -> None:
        node = session.get(BrokerZnode.path(3))
        prepared.append(node is not None and node.ephemeral_owner == former)

    registered = Registration(session, INFO, session_timeout_ms=60_000, on_new_session=prepare)
    registered.start()
    former, before = session.session_id, registered.broker_epoch
    owners: list[int] = []

    def look(_: MemoryZooKeeper, op: Op) -> None:
        if isinstance(op, Delete) and op.path == BrokerZnode.path(3):
            owners.append(former)

    ensemble.on_write = look
    session.reconnect()  # the client knows that its session is over, the server has not removed its node yet
    assert former in ensemble.sessions, "or the node would be gone by itself"
    wait_until(lambda: registered.broker_epoch not in (None, before))
    node = session.get(BrokerZnode.path(3))
    assert owners == [former]
    assert prepared == [True], "the controller's resignation is waited for before anything is written"
    assert node is not None and node.ephemeral_owner == session.session_id != former
    assert registered.broker_epoch == node.czxid
    registered.stop()


@pytest.mark.spec("Z-10")
def test_a_node_that_goes_before_it_is_looked_at_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = MemoryEnsemble()
    session, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)
    other.create(BrokerZnode.path(3), b"{}", ephemeral=True)
    get = session.get

    def gone(path: str) -> Node | None:
        other.delete(path)
        monkeypatch.undo()
        return get(path)

    monkeypatch.setattr(session, "get", gone)
    registered = Registration(session, INFO, session_timeout_ms=0)
    registered.start()
    assert registered.broker_epoch is not None
    registered.stop()


@pytest.mark.spec("Z-10", "BRK-121")
def test_a_foreign_node_is_tried_for_as_long_as_a_session_may_live_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = MemoryEnsemble()
    session, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)
    other.create(BrokerZnode.path(3), b"{}", ephemeral=True)
    now, tried = [100.0], []
    create = session.create

    def counted(*arguments: Any, **names: Any) -> str:
        tried.append(now[0])
        now[0] += 2
        return create(*arguments, **names)

    monkeypatch.setattr(session, "create", counted)
    monkeypatch.setattr(registration, "time", SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0))
    monkeypatch.setattr(registration, "_RETRY_S", 0)
    with pytest.raises(KafkatoolError, match="broker id 3 is in use"):
        Registration(session, INFO, session_timeout_ms=10_000).start()
    assert tried == [100 + 2.0 * n for n in range(8)], "10 s, and 5 more for ZooKeeper's ticks"
    node = session.get(BrokerZnode.path(3))
    assert node is not None and node.data == b"{}", "nobody else's node is touched"


@pytest.mark.spec("CTL-18")
def test_a_mere_disconnection_makes_no_new_registration() -> None:
    ensemble = MemoryEnsemble()
    session = MemoryZooKeeper(ensemble)
    told: list[None] = []
    registered = Registration(session, INFO, session_timeout_ms=0, on_new_session=lambda: told.append(None))
    registered.start()
    writes: list[str] = []
    ensemble.on_write = lambda _, op: writes.append(op.path)
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED):
        session.memory.tell(state)
    registered.stop()
    assert (told, writes) == ([], [])
    assert session.get(BrokerZnode.path(3)) is not None


@pytest.mark.spec("BRK-25", "BRK-120", "Z-8")
def test_a_registration_is_ephemeral_and_its_czxid_the_broker_epoch(base: ZooKeeper) -> None:
    registered = health(base)
    registered.start()
    node = base.get(BrokerZnode.path(3))
    assert node is not None
    assert node.ephemeral_owner == base.session_id
    assert registered.broker_epoch == node.czxid
    value = json.loads(node.data)
    assert 0 <= time.time() * 1000 - int(value.pop("timestamp")) < 3_600_000, "in milliseconds"
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


@pytest.mark.spec("BRK-122", "CTL-20", "Z-10", "CTL-18")
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


@pytest.mark.spec("BRK-122")
@pytest.mark.parametrize("error", [KafkatoolError("no"), OSError("no"), ValueError("no")])
def test_whatever_fails_before_a_broker_registers_again_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(registration, "_RETRY_S", 0)
    session = MemoryZooKeeper(MemoryEnsemble())
    tries: list[str] = []
    through = threading.Event()

    def fail_once() -> None:
        tries.append("try")
        if len(tries) == 1:
            raise error
        through.set()

    registered = Registration(session, INFO, session_timeout_ms=0, on_new_session=fail_once)
    registered.start()
    for state in (SessionState.EXPIRED, SessionState.CONNECTED):
        session.memory.tell(state)
    assert through.wait(60)
    registered.stop()
    assert tries == ["try"] * 2


@pytest.mark.spec("Z-9", "BRK-6", "BRK-120")
def test_port_0_and_an_empty_host_are_filled_in_before_registering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "canonical.example")
    bound = (Endpoint("PLAINTEXT", "", 4321), Endpoint("INNER", "", 4322))
    assert with_real_address(Endpoint("INNER", "h", 0), bound) == Endpoint("INNER", "h", 4322)
    assert with_real_address(Endpoint("PLAINTEXT", "", 80), bound) == Endpoint("PLAINTEXT", "canonical.example", 80)


# --- identity --------------------------------------------------------------------------------------------------------


def config(tmp_path: Path, **more: str) -> BrokerConfig:
    dirs = [tmp_path / "a", tmp_path / "b"]
    for directory in dirs:
        directory.mkdir(exist_ok=True)
    given = {"zookeeper.connect": "unused:1", "log.dirs": ",".join(map(str, dirs))}
    return BrokerConfig.from_properties(given | {k.replace("_", "."): v for k, v in more.items()})


@pytest.mark.spec("BRK-124", "Z-11", "Z-31")
def test_ids_are_generated_above_the_reserved_ones_and_kept(base: ZooKeeper, tmp_path: Path) -> None:
    first = broker_id, cluster_id = establish_identity(base, config(tmp_path))
    assert broker_id == 1001
    sequence = base.get("/brokers/seqid")
    assert sequence is not None and (sequence.data, sequence.version) == (b"", 1)
    assert len(cluster_id) == 22
    base.set("/brokers/seqid", b"another's", 1)  # whatever it holds, and whoever came between
    assert establish_identity(base, config(tmp_path, reserved_broker_max_id="5000"))[0] == 5003
    sequence = base.get("/brokers/seqid")
    assert sequence is not None and sequence.data == b""
    write_meta_properties(tmp_path / "b", 1001, cluster_id)
    assert establish_identity(base, config(tmp_path)) == first
    assert establish_identity(base, config(tmp_path, broker_id="1001")) == first
    node = base.get(ClusterIdZnode.PATH)
    assert node is not None and node.version == 0, "stored once"


@pytest.mark.spec("Z-11")
def test_of_two_brokers_that_ask_for_an_id_at_once_each_gets_its_own(
    base: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, others = base.set, list[int]()

    def overtaken(path: str, data: bytes, version: int) -> int:
        others.append(write(path, b"", -1) + 1000)
        return write(path, data, version)

    monkeypatch.setattr(base, "set", overtaken)
    assert (generate_broker_id(base, 1000), others) == (1002, [1001]), "no version is asked for"


@pytest.mark.spec("Z-31")
def test_of_two_brokers_that_start_at_once_both_have_the_id_stored_first(
    base: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, met = base.get, list[str]()

    def overtaken(path: str, watch: object = None) -> object:
        node = read(path)
        if path == ClusterIdZnode.PATH and not met:
            met.append(base.create(path, ClusterIdZnode.encode("x" * 22), make_parents=True))
        return node

    monkeypatch.setattr(base, "get", overtaken)
    assert establish_cluster(base) == "x" * 22
    assert met == [ClusterIdZnode.PATH]


@pytest.mark.spec("Z-31", "Z-36")
@pytest.mark.parametrize("overtaken", [False, True])
def test_a_cluster_id_without_content_is_made_as_if_there_were_none(
    monkeypatch: pytest.MonkeyPatch, *, overtaken: bool
) -> None:
    zk = MemoryZooKeeper(MemoryEnsemble())
    zk.create(ClusterIdZnode.PATH, b"", make_parents=True)
    read = zk.get

    def overtaking(path: str, watch: object = None) -> object:
        node = read(path)
        if overtaken and node is not None and not node.data:
            zk.set(path, ClusterIdZnode.encode("x" * 22), node.version)
        return node

    with monkeypatch.context() as patch:
        patch.setattr(zk, "get", overtaking)
        made = get_or_create_cluster_id(zk)
    node = zk.get(ClusterIdZnode.PATH)
    assert node is not None and (ClusterIdZnode.decode(node.data), node.version) == (made, 1)
    assert (made == "x" * 22) is overtaken and len(made) == 22


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
    assert node is not None
    assert json.loads(node.data) == {"version": 1, "broker": 1, "block_start": "2000", "block_end": "2999"}
    assert ProducerIds(base, 1).next_id() == 3000, "the rest of the block is lost at a restart"


@pytest.mark.spec("BRK-163")
@pytest.mark.parametrize("missing", [True, False])
def test_a_block_that_another_broker_took_meanwhile_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    ensemble = MemoryEnsemble()
    session, other = MemoryZooKeeper(ensemble), MemoryZooKeeper(ensemble)
    if missing:
        session.delete(ProducerIdBlockZnode.PATH)
    get, taken = session.get, list[int]()

    def overtaken(path: str) -> Node | None:
        node = get(path)
        if not taken:
            taken.append(ProducerIds(other, 2).next_id())
        return node

    monkeypatch.setattr(session, "get", overtaken)
    assert (ProducerIds(session, 1).next_id(), taken) == (1000, [0])


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


@pytest.mark.spec("BRK-125", "Z-27", "Z-28", "Z-36", "Z-37")
def test_changes_are_applied_in_order_and_a_bad_one_does_not_block_later_ones(
    base: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
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
    bad = [announce(base, notification) for notification in (b"{not json", "nonsense/x", b'{"version":9}')]
    strange = [base.create(f"{ConfigChangeZnode.PATH}/{name}") for name in ("other", "config_change_x")]
    empty = announce(base, b"")
    for notification in ("topics/fails", version_1):
        announce(base, notification)
    announce(base, ConfigZnode.entity_path("clients", "c d"))
    announce(base, "brokers/1")
    assert [seen.get(timeout=60) for _ in range(4)] == [
        ("topics", "fails", {}),
        ("topics", "t", {"b": "2"}),
        ("clients", "c%20d", {"q": "3"}),
        ("brokers", "1", {}),
    ]
    assert all(f"{path} is skipped" in caplog.text for path in bad) and empty not in caplog.text
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    skipped = [m for m in warned if m.startswith("no config changes, skipped: ")]
    assert skipped and all(any(path in m for m in skipped) for path in strange)
    assert {r.levelname for r in caplog.records if r.getMessage() in skipped} == {"WARNING"}
    base.set(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"b": "9"}), 0)  # of which nobody is told
    following.new_session()
    assert [seen.get(timeout=60) for _ in range(5)] == [
        ("topics", "early", {"a": "1"}),
        ("topics", "fails", {}),
        ("topics", "t", {"b": "9"}),
        ("clients", "c%20d", {"q": "3"}),
        ("brokers", "1", {}),
    ], "all of them again, in their order, each entity as it is now"
    following.stop()
    assert seen.empty()
    assert base.get(strange[0]) is not None


@pytest.mark.spec("Z-36")
def test_a_notification_that_is_gone_when_it_is_read_is_no_error(
    base: ZooKeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, gone, last = (announce(base, f"topics/{topic}") for topic in "abc")
    children = base.children

    def listed(path: str, watch: Watch | None = None) -> list[str] | None:
        names = children(path, watch)
        if base.get(gone) is not None:
            base.delete(gone)
        return names

    monkeypatch.setattr(base, "children", listed)
    seen: list[str] = []
    following = DynamicConfig(base, {"topics": lambda name, _: seen.append(name)})
    following.start()
    following.stop()
    assert seen == ["a", "c"] and gone not in caplog.text and first < gone < last
    assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]


@pytest.mark.spec("Z-29")
def test_notifications_older_than_15_minutes_are_removed(base: ZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    path = announce(base, "topics/t")
    node = base.get(path)
    assert node is not None
    for age_ms, kept in ((0, True), (900_000 - 2, True), (900_000 + 2, False)):
        monkeypatch.setattr(time, "time", lambda age_ms=age_ms: (node.ctime_ms + age_ms) / 1000)
        following = DynamicConfig(base, {})
        following.start()
        following.stop()
        assert (base.get(path) is not None) is kept, age_ms


@pytest.mark.spec("Z-29")
def test_a_notification_that_another_broker_has_removed_is_no_error(
    base: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in "ab":
        announce(base, f"topics/{topic}")
    now, delete = time.time(), base.delete
    monkeypatch.setattr(time, "time", lambda: now + EXPIRY_MS / 1000 + 1)

    def second(path: str) -> None:
        delete(path)
        delete(path)

    monkeypatch.setattr(base, "delete", second)
    seen: list[str] = []
    following = DynamicConfig(base, {"topics": lambda name, _: seen.append(name)})
    following.start()
    assert seen == ["a", "b"] and base.children(ConfigChangeZnode.PATH) == []
    following.stop()


@pytest.mark.spec("BRK-125", "BRK-41", "Z-25")
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
