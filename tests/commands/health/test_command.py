"""kt health as a monitor sees it: the page, the exit codes, and forgotten throttles taken off."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.health import command
from kafkatool.commands.health.by_znode import HealthByZnode
from kafkatool.commands.main import kt
from kafkatool.core.client.connections import Connections
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.health import by_request, checks, forgotten, memory, reading
from kafkatool.core.operations.reassignment.throttles import RATES, REPLICAS
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE
from kafkatool.core.protocol.messages.list_partition_reassignments import OngoingPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ConfigZnode, ControllerZnode, ReassignmentZnode, TopicZnode
from tests.core.operations.health.test_by_request import KRAFT, Cluster
from tests.core.operations.reassignment.plans import changes, config
from tests.core.zookeeper import cluster_nodes as nodes
from tests.ports import free_port
from tests.steady import STEADY, crash
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("unhurried")
T0 = TopicPartition("t", 0)


@contextmanager
def started() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, options=STEADY) as running:
        running.create_topic("t", partitions=12, replication_factor=2)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with started() as running:
        yield running


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second look follow the first without a wait."""
    monkeypatch.setattr(checks, "FORGOTTEN_S", 0.0)
    monkeypatch.setattr(checks, "NEW_S", 0.0)


def run(zookeeper: str, *args: object) -> Result:
    return CliRunner().invoke(kt, ["health", "--zookeeper", zookeeper, *map(str, args)])


def ask(bootstrap: str, *args: object) -> Result:
    return CliRunner().invoke(kt, ["health", "--bootstrap-server", bootstrap, *map(str, args)])


def findings(result: Result) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for item in json.loads(result.stdout)["items"]:
        if item["level"] != "ok":
            found.setdefault(item["check"], []).append((item["level"], item["count"]))
    return found


def set_throttle(zk: ZooKeeper) -> None:
    broker, topic = read_configs(zk, [("brokers", "1"), ("topics", "t")])
    broker.setting({RATES[0]: "5000", LOG_DIR_RATE: "7000", "log.cleaner.threads": "1"}).write(zk)
    topic.setting({REPLICAS[1]: "0:2", "retention.ms": "99999"}).write(zk)


@pytest.mark.spec("ADM-107", "ADM-109")
def test_a_page_and_an_exit_code_for_a_cluster_that_is_well_and_one_that_is_not() -> None:
    with started() as cluster, ZooKeeper(cluster.zookeeper) as zk:
        before = nodes.tree(zk)
        result = run(cluster.zookeeper)
        assert result.exit_code == 0, result.output
        assert nodes.tree(zk) == before
        lines = result.stdout.splitlines()
        assert lines[0] == "the cluster is ok"
        assert [re.split("  +", line)[:2] for line in lines[1:]] == [["ok", name] for name in checks.CHECKS]
        crash(cluster, zk, 2)

        def is_told() -> bool:
            page = run(cluster.zookeeper)  # what the dead broker does not lead stays well until its ISR is shrunk
            told = re.search(r"degraded  partitions .*t-0, t-1, t-2, t-3, t-4 and 7 more", page.stdout)
            return page.exit_code == 1 and told is not None

        eventually(is_told, "the dead broker to be told, and every partition that lacks it", 60)
        result = run(cluster.zookeeper, "--output", "json")
        assert findings(result)["brokers"] == [("degraded", 1)]
        assert json.loads(result.stdout)["items"][0]["level"] == "degraded"
        assert "and 7 more" not in run(cluster.zookeeper, "--all").stdout


@pytest.mark.spec("ADM-107", "COM-3X")
@pytest.mark.usefixtures("at_once")
def test_what_is_critical_exits_with_2_and_what_is_not_known_with_3(zk: ZooKeeper, zk_connect: str) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}}, states={}, controller=None)
    assert findings(run(zk_connect, "--output", "json"))["partitions"] == [("critical", 1)]
    assert run(zk_connect).exit_code == 2
    for bad in (("--no-such-flag",), ("--watch", "x"), ("--dry-run",), ("--remove-throttles", "--watch", "5")):
        result = run(zk_connect, *bad)
        assert (result.exit_code, result.stdout) == (3, ""), bad
        assert result.stderr.startswith("kt: "), bad
    result = run(f"{zk_connect}/nowhere", "--output", "json")
    assert result.exit_code == 3 and len(json.loads(result.stdout)["errors"]) == 1
    assert CliRunner().invoke(kt, ["health"]).exit_code == 3


@pytest.mark.spec("ADM-108", "COM-6X")
@pytest.mark.usefixtures("at_once")
def test_forgotten_throttles_are_found_and_just_their_keys_are_removed(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        set_throttle(zk)
        result = run(cluster.zookeeper, "--output", "json")
        assert (result.exit_code, findings(result)) == (
            1,
            {"verdict": [("degraded", 0)], "throttles": [("degraded", 2)]},
        )
        before = nodes.tree(zk)
        planned = run(cluster.zookeeper, "--remove-throttles", "--dry-run", "--output", "json")
        would = [tuple(item.values()) for item in json.loads(planned.stdout)["items"]]
        told_of = ("create sequential", "/config/changes/config_change_")
        assert would == [
            ("set", "/config/brokers/1", '{"version":1,"config":{"log.cleaner.threads":"1"}}'),
            (*told_of, '{"version":2,"entity_path":"brokers/1"}'),
            ("set", "/config/topics/t", '{"version":1,"config":{"retention.ms":"99999"}}'),
            (*told_of, '{"version":2,"entity_path":"topics/t"}'),
        ]
        assert nodes.tree(zk) == before
        told = len(changes(zk))
        result = run(cluster.zookeeper, "--remove-throttles")
        assert re.search("ok +throttles", result.stdout), result.output
        assert result.exit_code == 0, "as the health after it"
        assert "throttles removed from broker 1, topic t" in result.stderr
        assert config(zk, "brokers", "1") == {"log.cleaner.threads": "1"}
        assert config(zk, "topics", "t") == {"retention.ms": "99999"}
        assert sorted(changes(zk)[told:]) == ["brokers/1", "topics/t"]

        (of_all,) = read_configs(zk, [("brokers", "<default>")])
        of_all.setting({RATES[0]: "5000"}).write(zk)
        result = run(cluster.zookeeper, "--remove-throttles", "--output", "json")
        assert (result.exit_code, findings(result)) == (0, {"throttles": [("note", 1)]}), result.output
        assert config(zk, "brokers", "<default>") == {RATES[0]: "5000"}, "told, and left alone"
        (of_all,) = read_configs(zk, [("brokers", "<default>")])
        of_all.dropping({RATES[0]}).write(zk)


@pytest.mark.spec("ADM-108")
def test_removal_stops_when_something_begins_to_move(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}})
    set_throttle(zk)
    looks = 0

    def look() -> reading.Reading:
        nonlocal looks
        looks += 1
        if looks == 2:
            zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({}))
        return reading.read(zk, Connections())

    entities = [("brokers", "1"), ("topics", "t")]
    assert forgotten.remove(entities, look, HealthByZnode(zk).take_off) == entities[:1]
    assert config(zk, "topics", "t") == {REPLICAS[1]: "0:2", "retention.ms": "99999"}


def known(result: Result) -> dict[str, list[tuple[str, int]]]:
    """Return what was found but for the controller, which has changed if it was the one that died."""
    told = {check: [f for f in found if f[0] != "unknown"] for check, found in findings(result).items()}
    return {check: found for check, found in told.items() if found and check != "controller"}


OPEN = {
    "controller": [("unknown", 1)],
    "moves": [("unknown", 0)],
    "unclean elections": [("unknown", 0)],
    "deletions": [("unknown", 0)],
}
"""What one look by requests leaves open of a cluster with ZooKeeper."""


@pytest.mark.spec("ADM-107", "ADM-109")
def test_brokers_alone_tell_the_same_verdict_and_what_they_do_not_tell_is_unknown() -> None:
    with started() as cluster, ZooKeeper(cluster.zookeeper) as zk:
        before = nodes.tree(zk)
        asked = ask(cluster.bootstrap, "--output", "json")
        assert (asked.exit_code, findings(asked)) == (0, OPEN), asked.output
        assert ask(cluster.bootstrap).stdout.startswith("the cluster is ok\nunknown   controller ")
        assert nodes.tree(zk) == before
        crash(cluster, zk, 2)

        def alike() -> bool:
            told, by_request = (run(cluster.zookeeper, "--output", "json"), ask(cluster.bootstrap, "--output", "json"))
            by_znode, asked = known(told), known(by_request)
            return told.exit_code == by_request.exit_code == 1 and by_znode == asked and "brokers" in asked

        eventually(alike, "the dead broker told alike by both ways", 60)


@pytest.mark.spec("ADM-108", "ADM-109", "COM-6X")
@pytest.mark.usefixtures("at_once")
def test_forgotten_throttles_are_removed_by_requests_too(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        set_throttle(zk)

        def found() -> dict[str, list[tuple[str, int]]]:
            return findings(ask(cluster.bootstrap, "--output", "json"))

        eventually(lambda: found().get("throttles") == [("degraded", 2)], "brokers to know of the throttles", 60)
        before = nodes.tree(zk)
        planned = ask(cluster.bootstrap, "--remove-throttles", "--dry-run", "--output", "json")
        assert planned.exit_code == 0, planned.output
        shown = [(item["broker"], item["api"]) for item in json.loads(planned.stdout)["items"]]
        assert [api for _, api in shown] == ["IncrementalAlterConfigs"] * 2 and shown[0][0] == 1
        assert nodes.tree(zk) == before
        result = ask(cluster.bootstrap, "--remove-throttles")
        assert "throttles removed from broker 1, topic t" in result.stderr, result.output
        assert config(zk, "brokers", "1") == {"log.cleaner.threads": "1"}
        assert config(zk, "topics", "t") == {"retention.ms": "99999"}
        eventually(lambda: ask(cluster.bootstrap).exit_code == 0, "well again", 60)


@pytest.mark.spec("ADM-1", "ADM-107", "COM-3X")
def test_where_no_broker_answers_or_two_ways_are_given_the_health_is_not_known() -> None:
    nobody = ask(f"127.0.0.1:{free_port()}", "--output", "json")
    assert nobody.exit_code == 3 and len(json.loads(nobody.stdout)["errors"]) == 1
    both = ask("127.0.0.1:1", "--zookeeper", "127.0.0.1:1")
    assert (both.exit_code, both.stdout) == (3, "")
    assert "Only one of --bootstrap-server or --zookeeper must be specified" in both.stderr


@pytest.mark.spec("ADM-107")
def test_watch_looks_again_until_it_is_ended(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "sleep", wait)
    result = run(cluster.zookeeper, "--watch", "30", "--output", "json")
    assert (result.exit_code, waits) == (130, [30, 30, 30])
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == 3


@pytest.mark.spec("ADM-107")
@pytest.mark.parametrize("form", ["text", "json"])
def test_watch_goes_on_after_a_look_that_failed_with_what_it_knew(
    kraft: Cluster, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    waits = 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            raise KeyboardInterrupt
        for broker in kraft.brokers:
            broker.cluster_id = "another" if waits == 1 else "C"
        kraft.epoch += 1  # the controller was elected anew

    monkeypatch.setattr(command, "sleep", wait)
    result = ask(str(kraft.brokers[0].address), "--watch", "30", "--output", form)
    assert (result.exit_code, waits) == (130, 3), result.output
    why = f"{kraft.brokers[0].address} leads to two clusters, C and another"
    if form == "text":
        pages = result.stdout.split("the cluster is ")
        assert [page.partition("\n")[0] for page in pages[1:]] == ["ok", f"not known: {why}", "degraded"]
        assert "degraded  controller         changed within 5 min: controller 7" in pages[-1]
        return
    first, failed, last = map(json.loads, result.stdout.splitlines())
    assert failed["items"] == [] and [e["message"] for e in failed["errors"]] == [why]
    assert [d["items"][0]["level"] for d in (first, last)] == ["ok", "degraded"] and last["errors"] == []


@pytest.mark.spec("ADM-107")
def test_watch_goes_on_after_a_node_that_could_not_be_read(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}}, states={T0: (1, (1,))}, controller=None)
    waits = 0

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            raise KeyboardInterrupt
        if waits == 1:
            zk.create(ControllerZnode.PATH, b"no JSON")
        else:
            zk.delete(ControllerZnode.PATH)
            nodes.set_state(zk, T0, 2, (2,), leader_epoch=1)

    monkeypatch.setattr(command, "sleep", wait)
    result = run(zk_connect, "--watch", "30", "--output", "json")
    assert (result.exit_code, waits) == (130, 3), result.output
    _, failed, last = map(json.loads, result.stdout.splitlines())
    assert [ControllerZnode.PATH in e["message"] for e in failed["errors"]] == [True]
    assert ["t-0"] in [i["names"] for i in last["items"] if i["check"] == "unclean elections"]


@pytest.mark.slow
@pytest.mark.spec("ADM-107", "ADM-109")
def test_nodes_that_cannot_be_read_are_named_as_not_known(zk: ZooKeeper, zk_connect: str) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {}, "u": {}, "v": {}, "w": {}}, controller=None)
    broken = {
        TopicZnode.path("t"): ("partitions", "moves"),
        TopicZnode.path("u"): ("partitions", "moves"),
        ConfigZnode.path("topics", "v"): ("partitions", "throttles", "unclean elections"),
        BrokerZnode.path(7): ("brokers",),
    }
    for path in broken:
        if (node := zk.get(path)) is None:
            zk.create(path, b"no JSON", make_parents=True)
        else:
            zk.set(path, b"no JSON", node.version)
    items = json.loads(run(zk_connect, "--output", "json").stdout)["items"]
    told: dict[str, set[str]] = {}
    for item in items:
        if item["what"] == "not told: what nodes hold that cannot be read":
            assert item["level"] == "unknown"
            for name in item["names"]:
                told.setdefault(name, set()).add(item["check"])
    assert told == {path: set(checked) for path, checked in broken.items()}


# --- the file of --state --------------------------------------------------------------------------------------


def levels(result: Result) -> dict[str, set[str]]:
    """Return what was found, by check, without what is unknown."""
    found: dict[str, set[str]] = {}
    for item in json.loads(result.stdout)["items"]:
        if item["level"] not in ("ok", "unknown"):
            found.setdefault(item["check"], set()).add(item["what"])
    return found


@pytest.fixture
def kraft() -> Iterator[Cluster]:
    made = Cluster(KRAFT)
    yield made
    made.close()


@pytest.mark.spec("ADM-107")
def test_a_monitor_is_told_of_a_move_that_stands_still_by_the_exit_code(kraft: Cluster, tmp_path: Path) -> None:
    kraft.moving = [OngoingPartition(partition=0, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])]
    file = tmp_path / "state.json"

    def look(*args: object) -> Result:
        return ask(str(kraft.brokers[0].address), "--output", "json", *args)

    def let_pass(seconds: float) -> None:
        kept = json.loads(file.read_bytes())
        for move in kept["moves"]:
            move[2] -= seconds
        file.write_text(json.dumps(kept))

    assert look("--state", file).exit_code == 0
    let_pass(checks.STUCK_S)
    kraft.held[1] += 100  # as its leader is produced to
    stuck = look("--state", file)
    assert (stuck.exit_code, levels(stuck)["moves"]) == (1, {"1 partition moving without progress for 10 min"})
    assert look().exit_code == 0, "at one look nobody can know"
    kraft.held[3] += 1
    assert look("--state", file).exit_code == 0
    let_pass(checks.STUCK_S)
    assert look("--state", file).exit_code == 1
    kraft.moving = []
    assert look("--state", file).exit_code == 0
    assert not json.loads(file.read_bytes())["moves"]


@pytest.mark.spec("ADM-107")
def test_what_a_clock_that_was_ahead_has_left_is_dropped_and_that_is_said(kraft: Cluster, tmp_path: Path) -> None:
    kraft.moving = [OngoingPartition(partition=0, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])]
    file = tmp_path / "state.json"

    def look() -> Result:
        return ask(str(kraft.brokers[0].address), "--output", "json", "--state", file)

    def moved_at(change_s: float) -> float:
        """Change the time of the move in the file, and return it."""
        kept = json.loads(file.read_bytes())
        kept["moves"][0][2] += change_s
        file.write_text(json.dumps(kept))
        return float(kept["moves"][0][2])

    look()
    ahead = moved_at(86_400)
    dropped = look()
    assert "what former looks left is of a time to come, and is not used: was the clock set back?" in dropped.stderr
    assert dropped.exit_code == 0 and moved_at(0) < ahead - 80_000
    moved_at(-checks.STUCK_S)
    stuck = look()
    assert (stuck.exit_code, levels(stuck)["moves"]) == (1, {"1 partition moving without progress for 10 min"})
    assert "clock" not in stuck.stderr


@pytest.mark.spec("ADM-107")
def test_watch_drops_what_it_knew_when_the_clock_is_set_back(kraft: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, begun_s = 0, time()

    def wait(_: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            raise KeyboardInterrupt

    # a day ahead at the first look, then right, with a minute between the looks
    monkeypatch.setattr(by_request, "time", SimpleNamespace(time=lambda: begun_s + (86_400, 60, 120)[waits]))
    monkeypatch.setattr(command, "sleep", wait)
    result = ask(str(kraft.brokers[0].address), "--watch", "60", "--output", "json")
    assert (result.exit_code, waits) == (130, 3), result.output
    assert result.stderr.count("was the clock set back?") == 1


@pytest.mark.spec("ADM-107")
@pytest.mark.usefixtures("at_once")
def test_a_monitor_is_told_of_controllers_that_flap_and_of_an_unclean_election(kraft: Cluster, tmp_path: Path) -> None:
    runs = [ask(str(kraft.brokers[0].address), "--output", "json", "--state", tmp_path / "state.json")]
    for _ in range(memory.FLAPPING):
        kraft.epoch += 1
        runs.append(ask(str(kraft.brokers[0].address), "--output", "json", "--state", tmp_path / "state.json"))
    assert [run.exit_code for run in runs] == [0, 1, 1, 1]
    assert "changed 3 times within 10 min: it flaps" in levels(runs[-1])["controller"]

    codes = []
    for led in ((1, 3, [1]), (-1, 4, [1]), (2, 5, [2]), (2, 5, [2, 1])):
        kraft.led = led
        told = ask(str(kraft.brokers[0].address), "--output", "json", "--state", tmp_path / "unclean.json")
        codes.append((told.exit_code, levels(told).get("unclean elections")))
    seen = {"1 partition seen to be elected uncleanly"}
    assert codes == [(1, None), (2, None), (1, seen), (1, seen)], "at the last look of that alone"


@pytest.mark.spec("ADM-107", "COM-3X")
def test_a_file_that_does_not_serve_is_told_left_as_it_is_and_hides_no_verdict(kraft: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    assert ask(str(kraft.brokers[0].address), "--state", file).exit_code == 0
    other = file.read_bytes()
    for broker in kraft.brokers:
        broker.cluster_id = "another"
    for content, why in ((other, "is that of cluster C, and this is cluster another"), (b"mine", "or damaged")):
        file.write_bytes(content)
        result = ask(str(kraft.brokers[0].address), "--state", file)
        assert (result.exit_code, file.read_bytes()) == (3, content)
        assert result.stdout.startswith("the cluster is ok") and why in result.stderr
        told = json.loads(ask(str(kraft.brokers[0].address), "--state", file, "--output", "json").stdout)
        assert told["items"][0]["level"] == "ok" and [why in e["message"] for e in told["errors"]] == [True]
    nowhere = ask(str(kraft.brokers[0].address), "--state", tmp_path / "nowhere" / "state.json")
    assert nowhere.exit_code == 3 and "cannot write" in nowhere.stderr
    assert ask(str(kraft.brokers[0].address), "--state", tmp_path).exit_code == 3
    kraft.led = (1, 3, [1])
    assert ask(str(kraft.brokers[0].address), "--state", file).exit_code == 1, "degraded all the same"
    assert file.read_bytes() == b"mine"
