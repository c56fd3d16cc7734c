"""``kt logs report`` as a user meets it: figures, text, JSON and the page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kafkatool.commands.logs.page.plots import colour
from kafkatool.core.statelog.history import skew
from kafkatool.core.statelog.jobs import gathering
from kafkatool.core.statelog.lines.grammar import record_time
from tests.commands.logs.tools import EXAMPLE, NoSpark, document, run, without_spark
from tests.core.statelog.logs import CAPTURES, NEWER, at_info, lines_of, record, story


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> type[NoSpark]:
    return without_spark(monkeypatch)


@pytest.mark.spec("SCL-18X")
def test_the_example_outage_in_figures() -> None:
    (report,) = document("report", "--logs", EXAMPLE, "--top", 13)["items"]
    totals = report["totals"]
    assert (totals["partitions"], totals["without_leader"], totals["still_without_leader"]) == (13, 8, 0)
    assert totals["longest_leaderless_ms"] == 106_996
    assert [(c["epoch"], c["broker"], c["told_by"]) for c in report["controllers"]] == [
        (1, 1, "itself"),
        (2, 3, "itself"),
    ]
    assert [b["broker"] for b in report["brokers"]] == [1, 2, 3]
    assert sum(b["led_at_end"] for b in report["brokers"]) == 13
    worst = report["partitions"][0]
    assert (worst["topic"], worst["partition"], worst["leader"], worst["isr"]) == ("payments", 2, 2, [1, 2])
    assert sum(p["leaderless_ms"] for p in report["partitions"]) == totals["leaderless_ms"]
    assert sum(p["leader_changes"] for p in report["partitions"]) == totals["leader_changes"]
    assert sum(m["lines"] for m in report["minutes"]) == report["lines"]["records"]
    assert sum(report["plots"]["bars"]) == report["lines"]["records"]
    assert report["lines"]["unknown_form"] == 0
    assert report["visibility"] == {
        "modes": ["zookeeper"],
        "hours": {"zookeeper": ["2026-11-21 16:00", "2026-11-21 16:59"]},
        "leader_isr_changes": True,
        "offline": True,
        "controllers": True,
        "not_visible": [],
    }
    assert report["verdict"] == {"state": "complete", "reasons": [], "asked": None}
    led = report["plots"]["led"]
    assert sum(values[-2] for values in led.values()) == 13
    assert report["skew"] is None


@pytest.mark.spec("SCL-18X", "SCL-8")
def test_the_figures_are_the_same_wherever_the_logs_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = document("report", "--logs", EXAMPLE, "--skew")
    gather = gathering.gather
    monkeypatch.setattr(
        "kafkatool.commands.logs.session.gather", lambda *args, **more: gather(*args, **more, chunk_bytes=7000)
    )
    assert document("report", "--logs", EXAMPLE, "--skew") == whole


@pytest.mark.spec("SCL-18X")
def test_the_text_says_what_happened_first() -> None:
    result = run("report", "--logs", EXAMPLE, "--skew")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith(
        "8 of 13 partitions were without leader: 5 min 26 s in all, at most 1 min 47 s at a time; worst payments-2. All have"
    )
    for title in ("Controllers", "Brokers", "Partitions: the 10", "Busiest minutes", "Clocks", "Lines"):
        assert any(line.startswith(title) for line in result.stdout.splitlines())


@pytest.mark.spec("SCL-18X")
def test_what_happened_to_brokers_and_controllers_is_told_in_order() -> None:
    """As it was done: broker 2 killed, then broker 1, the controller; both started again, in that order."""
    (report,) = document("report", "--logs", EXAMPLE)["items"]
    assert [(m["time"][11:], m["kind"], m["broker"], m["partitions"], m["led"]) for m in report["chronology"]] == [
        ("16:07:37,714", "broker_gone", 2, 9, 4),
        ("16:08:20,035", "controller_changed", 3, 0, 0),
        ("16:08:22,243", "broker_gone", 1, 10, 6),
        ("16:09:24,710", "broker_back", 2, 0, 0),
        ("16:10:09,004", "broker_back", 1, 0, 0),
    ]
    of_one_topic = run("report", "--logs", EXAMPLE, "--topic", "clicks").stdout.splitlines()
    told = of_one_topic[of_one_topic.index("What happened") + 1 :][:3]
    assert told == [
        "  2026-11-21 16:07:37,714  broker 2 in no ISR of topic clicks any more: 1 partition, 1 led by it",
        "  2026-11-21 16:08:20,035  controller 1 → 3",
        "  2026-11-21 16:08:22,318  broker 1 in no ISR of topic clicks any more: 1 partition, 1 led by it",
    ], "of one topic alone it is not known whether the broker was gone"


@pytest.mark.spec("SCL-18X")
def test_the_page_has_five_lines_of_it_and_says_how_much_more_there_is(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", "--logs", CAPTURES / "3.9.1" / "story", "--html", page).exit_code == 0
    lines = re.findall(r"<li><time datetime=\"([^\"]+)\">([^<]+)</time> ([^<]+)</li>", page.read_text())
    assert [line[1] for line in lines] == ["12:41:10", "12:41:37", "12:41:50", "12:42:07", "12:43:14"]
    assert lines[0] == ("2026-11-22T12:41:10.823", "12:41:10", "broker 3 gone: 7 partitions, 3 led by it")
    assert lines[2][2] == "broker 1 stopped in a controlled way: 8 partitions, 3 led by it"
    assert lines[4][2] == "and 9 more until 2026-11-22 12:47:55,708"


@pytest.mark.spec("SCL-19X", "SCL-18X")
def test_what_info_lines_cannot_show_is_not_visible_and_not_zero(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    state = "OnlinePartition with state LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0)"
    log.write_bytes(
        record("00,001", f"[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to {state}", "INFO")
    )
    text = run("report", "--logs", log).stdout
    assert "Not visible: ISR changes that leaders make" in text
    assert "whether any was without leader is not visible" in text
    (report,) = document("report", "--logs", log)["items"]
    (partition,) = report["partitions"]
    assert (partition["isr_growths"], partition["leaderless_ms"], partition["outages"]) == (None, None, None)
    assert partition["elections"] == 1


def cards(page: Path) -> dict[str, str]:
    """Return the figures on the page's tiles, by their words."""
    return {
        words: figure for figure, words in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span></div>", page.read_text())
    }


def verdict_line(*arguments: object) -> str:
    return run("report", *arguments).stdout.splitlines()[0]


ONLINE = (
    "[Controller id=1 epoch=1] Changed partition t-0 from NewPartition to OnlinePartition with state LeaderAndIsr(leader=1, "
    "leaderEpoch=0, isr=List(1), zkVersion=0)"
)


@pytest.mark.spec("SCL-25X", "SCL-23X")
def test_a_line_of_unknown_form_leaves_everything_open(tmp_path: Path) -> None:
    log, page = tmp_path / "state-change.log", tmp_path / "r.html"
    log.write_bytes(record("00,001", ONLINE) + record("00,002", "[Broker id=1] Something new about t-0."))
    made = run("report", "--logs", log, "--html", page)
    first = made.stdout.splitlines()[0]
    assert first.startswith(f"cannot say: 1 of 2 dated lines are of unknown form (first: {log}:2). What was read: ")
    assert "At least 0 leader changes" in first
    assert not re.search(r"\bno\b", first)
    assert not re.search(r"\b(None of|never)\b", made.stdout)
    assert 'class="verdict calm"' not in page.read_text()
    assert first.replace("&", "&amp;") in page.read_text()
    assert cards(page)["leader changes"] == cards(page)["failed transitions"] == "not visible"
    (report,) = document("report", "--logs", log)["items"]
    assert report["verdict"]["state"] == "cannot_say"
    assert [reason.startswith("1 of 2 dated lines are") for reason in report["verdict"]["reasons"]] == [True, False]
    assert document("timeline", "--logs", log)["verdict"] == report["verdict"]
    for row in (r" +1 +2 +H +≥ 1 +H +H +≥ 1", r" +t-0 +H +H +H +≥ 1 +H +H +H +H +H +H +H +leader 1, ISR 1"):  # tables
        pattern = row.replace("H", "not visible")
        assert [line for line in made.stdout.splitlines() if re.fullmatch(pattern, line)], made.stdout
    assert made.exit_code == 0
    assert run("report", "--logs", log, "--strict").exit_code == 1
    # Before the time asked for it says nothing; a selection that only it may name is open, too.
    assert not verdict_line("--logs", log, "--end-time", "2016-01-01 10:00:00,001").startswith("cannot say")
    assert "Nothing in these logs about u-0" in verdict_line(
        *("--logs", log, "--topic", "u", "--partitions", 0, "--end-time", "2016-01-01 10:00:00,001")
    )
    open_ = verdict_line("--logs", log, "--topic", "u", "--partitions", 0)
    assert open_.startswith("cannot say: 1 of 2 dated lines")
    assert "Nothing" not in open_


@pytest.mark.spec("SCL-25X")
def test_dated_lines_of_another_layout_are_not_nothing(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(b"2016-01-01T10:00:00.001Z INFO Something happened\n" * 3)
    assert verdict_line("--logs", log) == f"cannot say: 3 of 3 dated lines are of unknown form (first: {log}:1)."


@pytest.mark.spec("SCL-25X")
def test_lines_of_other_loggers_are_counted_apart_and_leave_nothing_open(tmp_path: Path) -> None:
    """As in a container, where all of a broker's loggers write to one stream."""

    def of(logger: str, message: str, level: str = "INFO") -> bytes:
        return record("00,002", message, level).replace(b"(state.change.logger)", f"({logger})".encode())

    log = tmp_path / "state-change.log"
    log.write_bytes(
        record("00,001", ONLINE)
        + of("kafka.controller.KafkaController", "[Controller id=7 epoch=9] Something new about t-0", "TRACE")
        + of("org.apache.kafka.clients.NetworkClient", "[NodeClient] Node 5 disconnected.")
    )
    made = run("report", "--logs", log, "--strict")
    assert (made.exit_code, made.stdout.startswith("cannot say")) == (0, False)
    (report,) = document("report", "--logs", log)["items"]
    assert (report["lines"]["other_loggers"], report["lines"]["unknown_form"]) == (2, 0)
    assert [b["broker"] for b in report["brokers"]] == [1]
    assert [c["broker"] for c in report["controllers"]] == [1]
    assert (
        "dated lines of other loggers                   2" in run("merge", "--logs", log, "--out", "/dev/null").stderr
    )
    log.write_bytes(log.read_bytes() + record("00,003", "[Broker id=1] Something new about t-0."))
    assert verdict_line("--logs", log).startswith(
        f"cannot say: 1 of 2 dated lines are of unknown form (first: {log}:4)"
    )
    log.write_bytes(of("cut", "[Broker id=1] Something new about t-0 (and"))
    assert verdict_line("--logs", log).startswith("cannot say: 1 of 1 dated lines"), "a word is no logger"


@pytest.mark.spec("SCL-25X", "SCL-28X")
def test_a_gap_makes_none_seen_of_no_time_without_leader(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    cached = (
        "[Broker id=1] Cached leader info UpdateMetadataPartitionState(topicName='t', partitionIndex=0, controllerEpoch=1, "
        "leader=1, leaderEpoch=0, isr=[1], zkVersion={}, replicas=[1], offlineReplicas=[]) for partition t-0 in response to "
        "UpdateMetadata request sent by controller 1 epoch 1 with correlation id 3"
    )
    whole = record("00,001", ONLINE) + record("00,002", cached.format(0), "TRACE")
    log.write_bytes(whole)
    assert verdict_line("--logs", log).startswith("None of 1 partition was without leader.")
    log.write_bytes(whole + record("00,003", cached.format(4), "TRACE"))
    made = run("report", "--logs", log)
    assert made.stdout.startswith(
        "1 partition; none was seen without leader, but these logs do not tell all. At least 0"
    )
    assert not re.search(r"\b(None of|never)\b", made.stdout)
    assert re.search(r" t-0 +none seen +none seen ", made.stdout)


@pytest.mark.spec("SCL-25X")
def test_a_broker_without_a_file_is_named(tmp_path: Path) -> None:
    log, page = tmp_path / "state-change.log", tmp_path / "r.html"
    log.write_bytes(record("00,001", ONLINE.replace("List(1)", "List(1, 7)")))
    text = run("report", "--logs", log, "--html", page).stdout
    assert "No log of broker 7 is here." in text
    assert " leader change" in text.splitlines()[0] and "At least " in text.splitlines()[0]
    assert "None of" not in text
    assert 'class="verdict open"' in page.read_text()


@pytest.mark.spec("SCL-24X", "SCL-26X")
@pytest.mark.parametrize("in_one_file", [False, True])
def test_logs_of_both_modes_in_one_run_or_file_hide_what_either_hides(in_one_file: bool, tmp_path: Path) -> None:
    logs = ",".join(str(CAPTURES / version / "story") for version in NEWER)
    versions = ("2.8.2", *NEWER) if in_one_file else NEWER
    lines = [line for version in versions for path in story(version) for line in lines_of(path)]
    if in_one_file:
        (tmp_path / "state-change.log").write_text("\n".join([*lines, ""]), "latin-1")
        logs = str(tmp_path)
    merged = run("merge", "--logs", logs, "--strict")
    assert merged.exit_code == 0 and sorted(merged.stdout_bytes.decode("latin-1").splitlines()) == sorted(lines)
    made = run("merge", "--logs", logs, "--format", "jsonl", "--strict")
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert made.exit_code == 0 and all(row["event"] for row in rows)
    assert {row["mode"] for row in rows} == {"zookeeper", "kraft", None}
    told = {(row["source"], row["line"], row["text"]) for row in rows if row["text"] is not None}
    assert len(told) == sum(record_time(line) is not None for line in lines)
    assert run("timeline", "--logs", logs, "--strict").exit_code == 0
    (report,) = document("report", "--logs", logs)["items"]
    assert report["visibility"]["modes"] == ["zookeeper", "kraft"]
    with_, without = report["visibility"]["hours"]["zookeeper"], report["visibility"]["hours"]["kraft"]
    text = run("report", "--logs", logs).stdout
    assert (
        f"Lines with ZooKeeper ({with_[0]} to {with_[1]}) and without ({without[0]} to {without[1]}): controllers, their "
        "changes and failed elections are of the first alone, all other figures of both.\n"
    ) in text
    assert re.search(r"at least \d+ controller changes?\.", text.splitlines()[0])
    assert (report["visibility"]["offline"], report["visibility"]["controllers"]) == (False, False)
    assert report["lines"]["unknown_form"] == 0
    assert report["verdict"]["state"] == "partial"


@pytest.mark.spec("SCL-28X", "SCL-18X")
@pytest.mark.parametrize(
    ("version", "unseen", "unclean"),
    [
        ("3.9.1", {}, {"x.y_z-0": 1}),
        (
            "4.1.0",
            {"orders-0": 1, "solo-1": 2, "solo-2": 2},
            {"a-1-0": 1, "a-1-1": 1, "solo-1": 1, "solo-2": 1, "x.y_z-0": 1},
        ),
    ],
)
def test_changes_not_told_and_unclean_elections_are_counted_by_partition_and_in_all(
    version: str, unseen: dict[str, int], unclean: dict[str, int], tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    made = run("report", "--logs", CAPTURES / version / "story", "--top", 50, "--html", page)
    (report,) = document("report", "--logs", CAPTURES / version / "story", "--top", 50)["items"]
    by_name = {f"{p['topic']}-{p['partition']}": p for p in report["partitions"]}
    for name, expected in (("unseen", unseen), ("unclean", unclean)):
        assert {partition: p[name] for partition, p in by_name.items() if p[name]} == expected
        assert report["totals"][name] == sum(expected.values())
    number = sum(unclean.values())
    assert f" {number} unclean election{'s' * (number > 1)} (records may be lost), " in made.stdout.splitlines()[0]
    assert cards(page)["unclean elections"] == str(number)
    assert cards(page)["changes not in these logs"] == str(sum(unseen.values()))
    (heading,) = [line for line in made.stdout.splitlines() if "NOT TOLD" in line]
    rows = [line for line in made.stdout.splitlines() if line.split() and line.split()[0] in by_name]
    for title, expected in (("NOT TOLD", unseen), ("UNCLEAN", unclean)):
        at = heading.index(title)
        cells = {row.split()[0]: row[at : at + len(title)].strip() for row in rows}
        assert cells == {name: str(expected.get(name, 0)) for name in by_name}
    said = "5 changes of partitions not in these logs (gaps in partition epochs)"
    assert (said in report["verdict"]["reasons"]) is (said in made.stdout) is bool(unseen)


@pytest.mark.spec("SCL-19X", "SCL-24X", "SCL-25X", "SCL-26X")
@pytest.mark.parametrize("version", NEWER)
def test_at_the_default_level_changes_are_counted_and_what_it_hides_is_said(version: str, tmp_path: Path) -> None:
    at_info(version, tmp_path)
    page = tmp_path / "r.html"
    made = run("report", "--logs-regex", f"{tmp_path}/log", "--html", page)
    first = made.stdout.splitlines()[0]
    changes = re.search(r"At least (\d+) leader change", first)
    assert changes
    assert int(changes[1]) > 20
    assert "unclean election" in first
    assert "All have one" not in first
    assert 'class="verdict calm"' not in page.read_text()
    (report,) = document("report", "--logs-regex", f"{tmp_path}/log")["items"]
    assert (report["verdict"]["state"], report["lines"]["unknown_form"]) == ("partial", 0)
    hidden = " ".join(report["visibility"]["not_visible"])
    assert report["totals"]["unseen"] > 0
    if version == "4.1.0":
        assert report["visibility"]["modes"] == ["kraft"]
        for part in ("controllers and their changes", "failed elections", "why leaders were elected", "were deleted"):
            assert part in hidden
        assert "ISR changes that leaders make" not in hidden and "going offline" not in hidden
        assert cards(page)["controller changes"] == "not visible"
        assert (report["totals"]["isr_growths"] > 0, report["visibility"]["leader_isr_changes"]) == (True, True)
    else:
        assert report["visibility"]["modes"] == ["zookeeper"]
        assert "ISR changes that leaders make" in hidden and "going offline, and being deleted" in hidden
        assert "controllers" not in hidden
        assert cards(page)["controller changes"] == "1"
        assert cards(page)["ISR shrinks / growths"].startswith("≥ ")


@pytest.mark.spec("SCL-26X", "SCL-25X", "SCL-19X")
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_what_can_be_seen_is_decided_by_broker_and_by_the_hour(version: str, tmp_path: Path) -> None:
    """The level of one broker, then of all, is lowered an hour later. Real logs, whose clock is moved on."""

    def an_hour_later(line: str) -> str:
        return f"{line[:12]}{int(line[12:14]) + 1:02}{line[14:]}" if record_time(line) else line

    def write(*at_info: int) -> None:
        for path in story(version):
            broker = int(re.findall(r"\d+", path.name)[0])
            lines = lines_of(path)
            later = [an_hour_later(line) for line in lines if broker not in at_info or "] TRACE " not in line]
            (tmp_path / path.stem).write_text("\n".join([*lines, *later, ""]), "latin-1")

    def seen() -> tuple[bool, bool, list[str]]:
        (report,) = document("report", "--logs", tmp_path)["items"]
        visibility = report["visibility"]
        assert all(f"not visible: {hidden}" in report["verdict"]["reasons"] for hidden in visibility["not_visible"])
        return visibility["leader_isr_changes"], visibility["offline"], visibility["not_visible"]

    write()
    assert seen() == (True, True, [])
    write(2)
    alone = "what broker 2 alone would tell at TRACE (its logs are of INFO then)"
    assert seen() == (True, True, [alone])
    write(1, 2, 3, 4)
    day, hour = lines_of(story(version)[0])[0][1:14].split()
    when = f", in 1 hour from {day} {int(hour) + 1:02}:00 to {day} {int(hour) + 1:02}:59"
    isr, offline, (isr_hidden, offline_hidden) = seen()
    assert (isr, offline) == (False, False)
    assert isr_hidden.startswith("ISR changes that leaders make") and isr_hidden.endswith(when)
    assert offline_hidden.startswith("partitions going offline") and offline_hidden.endswith(when)
    until = f"{day} {hour}:59:59,999"
    (before,) = document("report", "--logs", tmp_path, "--end-time", until)["items"]
    assert before["visibility"]["not_visible"] == [], "the hour is not of the time asked for"
    page = tmp_path / "r.html"
    assert run("report", "--logs-regex", f"{tmp_path}/.*log", "--html", page).exit_code == 0
    assert cards(page)["ISR shrinks / growths"].startswith("≥ ")


@pytest.mark.spec("SCL-20X")
def test_a_clock_that_is_behind_is_proved_by_requests_that_arrive_before_they_were_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = "PartitionState(controllerEpoch=1, leader=2, leaderEpoch={}, isr=[1, 2], zkVersion=0, replicas=[1, 2])"
    sent = "[Controller id=1 epoch=1] Sending become-leader LeaderAndIsr request {} to broker 2 for partition t-0"
    got = "[Broker id=2] Received LeaderAndIsr request {} correlation id 1 from controller 1 epoch 1 for partition t-0"
    one, two = tmp_path / "1-state-change.log", tmp_path / "2-state-change.log"
    one.write_bytes(
        record(
            "00,000",
            "[Controller id=1 epoch=1] Changed state of replica 1 for partition t-0 from NewReplica to OnlineReplica",
        )
        + record("05,000", sent.format(state.format(0)))
        + record("09,000", sent.format(state.format(1)))
    )
    two.write_bytes(record("03,500", got.format(state.format(0))) + record("07,600", got.format(state.format(1))))
    (report,) = document("report", "--logs", tmp_path, "--skew")["items"]
    assert report["skew"] == [
        {"controller": 1, "broker": 2, "behind_at_least_ms": 1500, "ahead_at_most_ms": -1500, "pairs": 2}
    ]
    merged = run("merge", "--logs", tmp_path)
    assert "the clock of broker 2 is at least 1.5 s behind that of controller 1" in merged.stderr
    assert (skew.LOOK_BYTES, skew.MOST_LOGS) == (65_536, 50)
    with monkeypatch.context() as patch:
        patch.setattr(
            skew, "MOST_LOGS", 1
        )  # of more logs than that the last, here the broker's without the controller's
        assert "clock" not in run("merge", "--logs", tmp_path).stderr
    monkeypatch.setattr(skew, "LOOK_BYTES", 300)  # a merge looks at the last line alone, which proves nothing
    assert "clock" not in run("merge", "--logs", tmp_path).stderr
    assert document("report", "--logs", tmp_path, "--skew")["items"] == [report]
    assert "clock" not in run("merge", "--logs", EXAMPLE).stderr


@pytest.mark.spec("SCL-20X")
@pytest.mark.parametrize(
    ("controller", "epoch", "leader_epoch", "partition", "pairs"),
    [(1, 1, 0, 0, 1), (3, 1, 0, 0, 0), (1, 2, 0, 0, 0), (1, 1, 1, 0, 0), (1, 1, 0, 1, 0)],
)
def test_only_lines_of_one_controller_epoch_leader_epoch_and_partition_are_a_pair(
    tmp_path: Path, controller: int, epoch: int, leader_epoch: int, partition: int, pairs: int
) -> None:
    state = "PartitionState(controllerEpoch=1, leader=2, leaderEpoch={}, isr=[1, 2], zkVersion=0, replicas=[1, 2])"
    created = "Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 1,2"
    sent = f"Sending become-leader LeaderAndIsr request {state.format(0)} to broker 2 for partition t-0"
    heard = b"".join(
        record("00,000", f"[Controller id={by} epoch={of}] {created}") for by, of in ((1, 1), (1, 2), (3, 1))
    )
    (tmp_path / "1-state-change.log").write_bytes(heard + record("05,000", f"[Controller id=1 epoch=1] {sent}"))
    (tmp_path / "2-state-change.log").write_bytes(
        record(
            "02,000",
            f"[Broker id=2] Received LeaderAndIsr request {state.format(leader_epoch)} correlation id 1 from controller "
            f"{controller} epoch {epoch} for partition t-{partition}",
        )
    )
    (report,) = document("report", "--logs", tmp_path, "--skew")["items"]
    assert [(s["behind_at_least_ms"], s["pairs"]) for s in report["skew"]] == [(3000, 1)] * pairs
    assert ("the clock of broker 2" in run("merge", "--logs", tmp_path).stderr) is bool(pairs)


@pytest.mark.spec("SCL-20X")
@pytest.mark.parametrize(("late", "warned"), [("05,000", False), ("03,999", False), ("03,998", True)])
def test_a_merge_warns_of_clocks_more_than_a_second_apart(tmp_path: Path, late: str, warned: bool) -> None:
    state = "PartitionState(controllerEpoch=1, leader=2, leaderEpoch=0, isr=[1, 2], zkVersion=0, replicas=[1, 2])"
    sent = f"[Controller id=1 epoch=1] Sending become-leader LeaderAndIsr request {state} to broker 2 for partition t-0"
    got = f"[Broker id=2] Received LeaderAndIsr request {state} correlation id 1 from controller 1 epoch 1 for partition t-0"
    (tmp_path / "1-state-change.log").write_bytes(
        record(
            "00,000",
            "[Controller id=1 epoch=1] Changed partition t-0 state from NonExistentPartition to NewPartition "
            "with assigned replicas 1,2",
        )
        + record("04,999", sent)
    )
    (tmp_path / "2-state-change.log").write_bytes(record(late, got))
    merged = run("merge", "--logs", tmp_path)
    assert ("the clock of broker 2 is at least" in merged.stderr) is warned


@pytest.mark.spec("SCL-18X")
def test_every_figure_of_a_small_log(tmp_path: Path) -> None:
    def online(time: str, before: str, leader: int, epoch: int, isr: str) -> bytes:
        state = f"LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({isr}), zkVersion={epoch})"
        return record(
            time, f"[Controller id=1 epoch=1] Changed partition t-0 from {before} to OnlinePartition with state {state}"
        )

    def cached(time: str, leader: int, epoch: int, isr: str, version: int) -> bytes:
        state = f"controllerEpoch=1, leader={leader}, leaderEpoch={epoch}, isr=[{isr}], zkVersion={version}"
        return record(
            time,
            f"[Broker id=3] Cached leader info PartitionState({state}, replicas=[1, 2, 3], offlineReplicas=[]) for "
            "partition t-0 in response to UpdateMetadata request sent by controller 1 epoch 1 with correlation id 1",
        )

    offline = "[Controller id=1 epoch=1] Changed partition t-0 state from OnlinePartition to OfflinePartition"
    failed = (
        "[Controller id=1 epoch=1] Controller 1 epoch 1 failed to change state for partition t-0 from OfflinePartition "
    )
    stale = (
        "[Broker id=3] Ignoring LeaderAndIsr request from controller 1 with correlation id 9 since its controller epoch 1 "
        "is old. Latest known controller epoch is 2"
    )
    old = (
        "[Broker id=3] Ignoring LeaderAndIsr request from controller 1 with correlation id 9 epoch 1 for partition t-0 "
        "since its associated leader epoch 0 is smaller than the current leader epoch 1"
    )
    (tmp_path / "state-change.log").write_bytes(
        record(
            "00,000",
            "[Controller id=1 epoch=1] Changed partition t-0 state from NonExistentPartition to NewPartition "
            "with assigned replicas 1,2,3",
        )
        + online("00,010", "NewPartition", 1, 0, "1, 2, 3")
        + record("10,000", offline)
        + record("10,100", failed + "to OnlinePartition", "ERROR")
        + online("12,500", "OfflinePartition", 2, 1, "2, 3")
        + cached("20,000", 2, 1, "1, 2, 3", 2)
        + record("2016-01-01 10:01:00,000", stale, "WARN")
        + record("2016-01-01 10:01:00,000", old, "WARN")
        + record("2016-01-01 10:01:00,001", "[Controller id=2 epoch=2] says what is not known")
    )
    (report,) = document("report", "--logs", tmp_path, "--top", 1)["items"]
    assert {name: report["totals"][name] for name in report["totals"] if report["totals"][name]} == {
        "partitions": 1,
        "without_leader": 1,
        "longest_leaderless_ms": 2500,
        "leaderless_ms": 2500,
        "outages": 1,
        "elections": 2,
        "leader_changes": 1,
        "isr_shrinks": 1,
        "isr_growths": 1,
        "failed": 1,
        "ignored": 1,
        "stale_controllers": 1,
    }
    (partition,) = report["partitions"]
    counted = ("elections", "leader_changes", "isr_shrinks", "isr_growths", "leaderless_ms", "failed", "ignored")
    assert [partition[name] for name in counted] == [2, 1, 1, 1, 2500, 1, 1]
    assert (partition["leader"], partition["isr"]) == (2, [1, 2, 3])
    by_broker = {
        b["broker"]: (b["lost"], b["gained"], b["left_isr"], b["joined_isr"], b["led_at_end"])
        for b in report["brokers"]
    }
    assert by_broker[1] == (1, 1, 1, 1, 0) and by_broker[2] == (0, 1, 0, 0, 1)
    assert [(c["epoch"], c["broker"]) for c in report["controllers"]] == [(1, 1), (2, 2)]
    assert [(m["minute"], m["lines"]) for m in report["minutes"]] == [("2016-01-01 10:00", 6)], "--top 1"
    assert report["lines"]["unknown_form"] == 1


@pytest.mark.spec("SCL-18X")
def test_a_leader_that_is_elected_again_is_an_election_and_no_change(tmp_path: Path) -> None:
    def online(time: str, before: str, epoch: int) -> bytes:
        state = f"LeaderAndIsr(leader=1, leaderEpoch={epoch}, isr=List(1), zkVersion={epoch})"
        return record(
            time, f"[Controller id=1 epoch=1] Changed partition t-0 from {before} to OnlinePartition with state {state}"
        )

    offline = "[Controller id=1 epoch=1] Changed partition t-0 state from OnlinePartition to OfflinePartition"
    (tmp_path / "state-change.log").write_bytes(
        online("00,010", "NewPartition", 0) + record("10,000", offline) + online("12,500", "OfflinePartition", 1)
    )
    (report,) = document("report", "--logs", tmp_path)["items"]
    (partition,) = report["partitions"]
    assert [partition[name] for name in ("elections", "leader_changes", "outages")] == [2, 0, 1]
    assert [(b["lost"], b["gained"]) for b in report["brokers"]] == [(0, 1)]
    with (tmp_path / "state-change.log").open("ab") as log:
        log.write(record("20,000", offline) + online("21,000", "OfflinePartition", 2))
    lengths = ("leaderless_ms", "longest_leaderless_ms", "outages")
    for start, expected in (("00,000", [3500, 2500, 2]), ("12,000", [1500, 1000, 2]), ("15,000", [1000, 1000, 1])):
        (report,) = document("report", "--logs", tmp_path, "--start-time", f"2016-01-01 10:00:{start}")["items"]
        (partition,) = report["partitions"]
        assert [partition[name] for name in lengths] == expected, "the first of them cut at the start"


@pytest.mark.spec("SCL-18X", "SCL-8")
@pytest.mark.parametrize("buckets", [1, 3, 256])
def test_the_figures_are_the_same_for_any_number_of_shuffle_partitions(
    monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    whole = document("report", "--logs", EXAMPLE)
    timeline = run("timeline", "--logs", EXAMPLE).stdout
    monkeypatch.setattr(gathering, "MOST_BUCKETS", buckets)
    gather = gathering.gather
    monkeypatch.setattr(
        "kafkatool.commands.logs.session.gather", lambda *args, **more: gather(*args, **more, chunk_bytes=1000)
    )
    assert document("report", "--logs", EXAMPLE) == whole
    assert run("timeline", "--logs", EXAMPLE).stdout == timeline


class _Page(HTMLParser):
    """Checks that elements nest, and remembers what would leave the page."""

    void = frozenset({"meta", "br", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action"):
                self.links.append(value or "")
            if name == "id":
                self.ids.add(value or "")
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.spec("SCL-18X")
def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    result = run("report", "--logs", EXAMPLE, "--html", tmp_path / "report.html")
    assert result.exit_code == 0
    assert "report.html written" in result.stderr
    text = (tmp_path / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert {"svg", "table", "h1", "nav", "main"} <= page.tags
    assert not {"script", "img", "link", "iframe"} & page.tags
    assert {link.removeprefix("#") for link in page.links} <= page.ids
    assert not re.search(r"https?:|@import|url\((?!#none\))", text)
    assert text.count('class="lane"') == 10


@pytest.mark.spec("SCL-18X")
def test_figures_are_aligned_whatever_their_words_and_every_tint_has_its_word(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", "--logs", CAPTURES / "3.9.1" / "story", "--html", page).exit_code == 0
    text = page.read_text()
    (partitions,) = re.findall(r'<section id="partitions">.*?</section>', text, re.DOTALL)
    assert [
        word for figure, word in re.findall(r'<th scope="col"( class=n)?>([^<]+)</th>', partitions) if not figure
    ] == [*("Partition", "At the end", "ISR")]
    for row in re.findall(r"<tr>(.*?)</tr>", partitions)[1:]:
        classes = re.findall(r'<td(?: class="([^"]*)")?>', row)
        assert ["n" in c.split() for c in classes] == [False, *[True] * 11, False, False]
    assert "another controller took over" in text
    assert len({colour(i) for i in range(30)}) == 30


@pytest.mark.spec("SCL-18X")
def test_names_from_the_logs_are_text_in_the_page(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(record("00,001", "[Broker id=1] <script>alert(1)</script>"))
    assert run("report", "--logs", log, "--html", tmp_path / "r.html").exit_code == 0
    assert "<script" not in (tmp_path / "r.html").read_text()


@pytest.mark.spec("SCL-18X", "SCL-23X")
def test_a_file_without_any_dated_line_is_said_to_be_one(tmp_path: Path) -> None:
    log = tmp_path / "state-change.log"
    log.write_bytes(b"hello\nworld\n")
    result = run("report", "--logs", log, "--html", tmp_path / "r.html")
    assert result.exit_code == 0
    assert result.stdout.startswith("No line with a time: nothing to report.")
    assert "no dated line" in (tmp_path / "r.html").read_text()
    assert run("report", "--logs", log, "--output", "tsv").stdout.count("\n") == 1


@pytest.mark.spec("SCL-18X")
def test_topics_and_times_bound_the_report() -> None:
    (report,) = document("report", "--logs", EXAMPLE, "--topic", "clicks", "--start-time", "2026-11-21 16:08:00,000")[
        "items"
    ]
    assert {p["topic"] for p in report["partitions"]} == {"clicks"}
    assert report["logs"]["first"] == "2026-11-21 16:08:00,000"
    assert report["lines"]["lines"] == 1349
    assert all(m["minute"] >= "2026-11-21 16:08" for m in report["minutes"])


@pytest.mark.spec("SCL-25X")
@pytest.mark.parametrize("command", ["report", "timeline"])
def test_who_mistypes_a_topic_is_told_which_one_there_is(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gather = gathering.gather
    monkeypatch.setattr(
        "kafkatool.commands.logs.session.gather", lambda *args, **more: gather(*args, **more, chunk_bytes=7000)
    )
    typo = run(command, "--logs", EXAMPLE, "--topic", "paymets", "--partition", 2)
    assert typo.exit_code == 0 and "othing in these logs about paymets-2" in typo.stdout
    assert "kt: no line names paymets-2; near: payments\n" in typo.stderr
    number = run(command, "--logs", EXAMPLE, "--topic", "payments", "--partition", 77)
    assert "kt: no line names payments-77; other partitions of payments are named\n" in number.stderr
    strange = run(command, "--logs", EXAMPLE, "--topic", "xyzzy")
    assert "kt: no line names topic xyzzy\n" in strange.stderr
    assert "no line names" not in run(command, "--logs", EXAMPLE, "--topic", "payments").stderr
