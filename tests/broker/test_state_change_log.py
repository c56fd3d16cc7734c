"""The file: layout, rolling by the hour, and lines that the log merger knows."""

import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.statelog.lines.grammar import parse_head, partition_spans
from tests.broker.controller.fake_cluster import FakeCluster
from tests.commands.logs.tools import run, without_spark


@pytest.mark.spec("CTL-117")
def test_the_layout_is_log4js(tmp_path: Path) -> None:
    at = time.mktime((2016, 1, 1, 10, 0, 0, 0, 0, -1)) + 0.1234
    log = StateChangeLog(tmp_path / "logs" / "state-change.log", clock=lambda: at)
    log.write("TRACE", ["one", "two"])
    log.write("ERROR", [])
    log.close()
    assert (tmp_path / "logs" / "state-change.log").read_text().splitlines() == [
        "[2016-01-01 10:00:00,123] TRACE one (state.change.logger)",
        "[2016-01-01 10:00:00,123] TRACE two (state.change.logger)",
    ]


@pytest.mark.spec("CTL-117")
def test_the_first_line_of_a_new_hour_rolls_the_file(tmp_path: Path) -> None:
    now = [time.mktime((2016, 1, 1, 10, 59, 59, 0, 0, -1))]
    path = tmp_path / "state-change.log"
    log = StateChangeLog(path, clock=lambda: now[0])
    log.write("INFO", ["old"])
    now[0] += 7201  # an hour without lines has no file
    log.write("INFO", ["new"])
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-change.log", "state-change.log.2016-01-01-10"]
    assert "old" in (tmp_path / "state-change.log.2016-01-01-10").read_text()
    assert path.read_text() == "[2016-01-01 13:00:00,000] INFO new (state.change.logger)\n"


@pytest.mark.spec("CTL-117")
def test_an_hour_ends_with_its_last_second_and_is_named_as_one_of_24(tmp_path: Path) -> None:
    ends = time.mktime((2016, 1, 1, 23, 0, 0, 0, 0, -1))
    now = [ends - 2400]
    path = tmp_path / "state-change.log"
    log = StateChangeLog(path, clock=lambda: now[0])
    log.write("INFO", ["first"])
    now[0] = ends - 0.1
    log.write("INFO", ["last"])
    assert [p.name for p in path.parent.iterdir()] == ["state-change.log"]
    now[0] = ends
    log.write("INFO", ["next"])
    log.close()
    rolled = path.with_name("state-change.log.2016-01-01-22")
    assert [len(p.read_text().splitlines()) for p in (rolled, path)] == [2, 1]


@pytest.mark.spec("CTL-117")
def test_of_an_hour_that_comes_twice_the_second_file_stays(tmp_path: Path) -> None:
    """The clock was set back; as log4j does it."""
    ten = time.mktime((2016, 1, 1, 10, 30, 0, 0, 0, -1))
    now = [ten]
    log = StateChangeLog(tmp_path / "state-change.log", clock=lambda: now[0])
    for at, text in ((ten, "first"), (ten + 3600, "eleven"), (ten, "second"), (ten + 3600, "again")):
        if at < now[0]:
            log.close()  # a broker that starts anew
        now[0] = at
        log.write("INFO", [text])
        os.utime(tmp_path / "state-change.log", (at, at))
    log.close()
    ours = "state-change.log.2016-01-01-10"
    assert "second" in (tmp_path / ours).read_text() and "first" not in (tmp_path / ours).read_text()


@pytest.mark.spec("CTL-117")
def test_a_file_of_an_earlier_run_is_continued_or_rolled_by_its_age(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    log = StateChangeLog(path)
    log.write("INFO", ["first"])
    log.close()
    log.write("INFO", ["second"])  # opened again, within the same hour or the next
    log.close()
    written = "".join(p.read_text() for p in sorted(tmp_path.iterdir(), reverse=True))
    assert "first" in written
    assert "second" in written
    later = StateChangeLog(path, clock=lambda: time.time() + 7200)
    later.write("INFO", ["third"])
    later.close()
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.spec("CTL-117")
def test_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    log = StateChangeLog(path)

    def write_fifty(number: int) -> None:
        for i in range(50):
            log.write("TRACE", [f"{number}-{i}"] * 3)

    threads = [threading.Thread(target=write_fifty, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 600
    assert all(line.endswith(" (state.change.logger)") and line.startswith("[") for line in lines)


@pytest.mark.spec("CTL-117")
def test_nothing_is_written_without_a_path_and_a_bad_path_costs_nobody_anything(tmp_path: Path) -> None:
    StateChangeLog(None).write("INFO", ["x"])
    (tmp_path / "file").write_text("")
    StateChangeLog(tmp_path / "file" / "below").write("INFO", ["x"])


@pytest.mark.spec("CTL-23", "CTL-117")
def test_every_line_of_a_controllers_life_is_of_a_known_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creation, failure, election, failed election, reassignment, deletion, a bad directory: nothing unknown."""
    path = tmp_path / "state-change.log"
    cluster = FakeCluster(1, 2, 3, 4, properties={"delete.topic.enable": "true"})
    term = cluster.controller.term
    assert term is not None
    log = StateChangeLog(path)
    object.__setattr__(term.surroundings, "state_change_log", log)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [9]}, unclean_leader_election_enable="false")
    cluster.reassign({TopicPartition("t", 0): [3, 4]})
    cluster.brokers[4].storage_errors = {TopicPartition("t", 0)}
    cluster.kill(3)
    cluster.run()
    cluster.elect_preferred(TopicPartition("t", 1))
    cluster.restart(3, 9)
    cluster.delete_topic("t")
    log.close()
    said = set()
    for line in path.read_text().splitlines():
        head = parse_head(line)
        assert head is not None
        assert head.form is not None, line
        assert head.form.id[0] == "B" or head.form.id == "C16", "1.1.1's; it has none for StopReplica sent"
        assert head.actor is not None
        assert head.actor.id == 1
        assert head.actor.epoch == 1 or head.form.id in ("B9", "B10")
        assert partition_spans(head.body), line
        said.add(head.body.split()[0])
    assert said >= {"Changed", "Sending", "Sent"}
    without_spark(monkeypatch)
    merged = run("merge", "--strict", "--logs", path)
    assert merged.exit_code == 0, merged.stderr  # --strict: no line of unknown form
    assert sorted(merged.stdout.splitlines()) == sorted(path.read_text().splitlines())


_CHANGED = re.compile(
    r"Changed (?:state of replica (?P<replica>\d+) for )?partition (?P<partition>\S+) "
    r"(?:state )?from (?P<old>\w+) to (?P<new>\w+)"
)
_SENDING = re.compile(
    r"Sending (?:become-(?:leader|follower) )?(?P<kind>\w+) request .*? to brokers? (?P<to>\d+|Set\([\d, ]*\)) "
    r"for partition (?P<partition>\S+)"
)


def eventful(cluster: FakeCluster) -> None:
    """Create, lose brokers, reassign, elect, hand over, delete, on the controller of broker 1."""
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [9]}, unclean_leader_election_enable="false")
    cluster.create_topic("u", {0: [2, 3]})
    cluster.reassign({TopicPartition("t", 0): [3, 4]})
    cluster.kill(3)
    cluster.run()
    cluster.restart(3, 9)
    cluster.elect_preferred(TopicPartition("t", 1), TopicPartition("u", 0))
    term = cluster.controller.term
    assert term is not None
    term.controlled_shutdown.serve(2, None)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    cluster.brokers[9].stop_error = 56
    cluster.delete_topic("t")
    cluster.kill(9)
    cluster.run()
    cluster.restart(9)


@pytest.mark.spec("CTL-23", "CTL-117")
def test_every_transition_is_logged() -> None:
    """From what the lines say alone, all states follow, at each step from those before it."""
    cluster = FakeCluster(1, 2, 3, 4, properties={"delete.topic.enable": "true"})
    eventful(cluster)
    partitions: dict[str, str] = {}
    replicas: dict[tuple[str, str], str] = {}
    seen: set[str] = set()
    for line in cluster.log.told("Changed "):
        told = _CHANGED.match(line)
        assert told is not None, line
        if told["replica"]:
            before = replicas.get((told["partition"], told["replica"]), "NonExistentReplica")
            replicas[told["partition"], told["replica"]] = told["new"]
        else:
            before = partitions.get(told["partition"], "NonExistentPartition")
            partitions[told["partition"]] = told["new"]
        assert told["old"] == before, line
        seen.add(told["new"])
    term = cluster.controller.term
    assert term is not None
    context = term.context
    gone = {"t-0", "t-1", "t-2"}
    assert {p for p, s in partitions.items() if s == "NonExistentPartition"} == gone
    assert {p: s for p, s in partitions.items() if p not in gone} == {
        str(p): s for p, s in context.partition_status.items()
    }
    assert {r: s for r, s in replicas.items() if s != "NonExistentReplica"} == {
        (str(p), str(b)): s for p, statuses in context.replica_status.items() for b, s in statuses.items()
    }
    assert seen == {*PartitionStatus, *ReplicaStatus}


@pytest.mark.spec("CTL-23", "CTL-56", "CTL-117")
def test_every_request_sent_is_logged_with_each_of_its_partitions() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties={"delete.topic.enable": "true"})
    cluster.sent.clear()
    cluster.log.lines.clear()
    eventful(cluster)
    logged: Counter[tuple[str, int, str]] = Counter()
    for line in cluster.log.told("Sending "):
        told = _SENDING.match(line)
        assert told is not None, line
        for broker in re.findall(r"\d+", told["to"]):
            logged[told["kind"], int(broker), told["partition"]] += 1
    sent: Counter[tuple[str, int, str]] = Counter()
    for broker, state in cluster.leader_and_isr():
        sent["LeaderAndIsr", broker, f"{state.topic}-{state.partition}"] += 1
    for broker, _, partition in cluster.stops():
        sent["StopReplica", broker, str(partition)] += 1
    for broker, request in cluster.metadata():
        for told_of in request.partition_states:
            sent["UpdateMetadata", broker, f"{told_of.topic}-{told_of.partition}"] += 1
    # what was under way to brokers 2, 3 and 9 when they died is logged and never arrived
    assert sent <= logged
    assert {b for (_, b, _), n in logged.items() if n} == {1, 2, 3, 4, 9}
    assert {(kind, b) for kind, b, _ in logged - sent} <= {(kind, b) for kind, b, _ in logged if b in (2, 3, 9)}
    assert {kind for kind, _, _ in sent} == {"LeaderAndIsr", "UpdateMetadata", "StopReplica"}
    deletes = [line for line in cluster.log.told("Sending StopReplica") if "deletePartition=true" in line]
    assert len(deletes) == len([d for _, d, _ in cluster.stops() if d])
    assert {level for level, message in cluster.log.lines if "] Sending " in message} == {"TRACE"}


@pytest.mark.spec("CTL-117")
def test_what_a_stop_replica_is_said_to_tell() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.reassign({TopicPartition("t", 0): [2]})
    told = "(partitionIndex=0, leaderEpoch=2, deletePartition={}) to broker 3 for partition t-0"
    assert cluster.state("t").leader_epoch == 2
    assert cluster.log.told("Sending StopReplica") == [
        f"Sending StopReplica request StopReplicaPartitionState{told.format(delete)}" for delete in ("false", "true")
    ]
