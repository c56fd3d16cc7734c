"""The file: layout, rolling by the hour, and lines that the log merger knows."""

import threading
import time
from pathlib import Path

import pytest

from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.statelog.lines.grammar import parse_head, partition_spans
from tests.broker.controller.fake_cluster import FakeCluster


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
def test_every_line_of_a_controllers_life_is_of_a_known_form(tmp_path: Path) -> None:
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
        assert head.actor is not None
        assert head.actor.id == 1
        assert partition_spans(head.body), line
        said.add(head.body.split()[0])
    assert said >= {"Changed", "Sending", "Sent"}
