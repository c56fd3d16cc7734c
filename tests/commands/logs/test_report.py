"""``kt logs report`` as a user meets it: figures, text, JSON and the page."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kafkatool.core.statelog.jobs import gathering
from tests.commands.logs.tools import EXAMPLE, NoSpark, document, run, without_spark
from tests.core.statelog.logs import record


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
    assert report["visibility"] == {"leader_isr_changes": True, "offline": True, "not_visible": []}
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
    assert result.stdout.splitlines()[3].startswith(
        "8 of 13 partitions were without leader: 5 min 26 s in all, at most 1 min 47 s at a time; worst payments-2. All have"
    )
    for title in ("Controllers", "Brokers", "Partitions: the 10", "Busiest minutes", "Clocks", "Lines"):
        assert any(line.startswith(title) for line in result.stdout.splitlines())


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


@pytest.mark.spec("SCL-20X")
def test_a_clock_that_is_behind_is_proved_by_requests_that_arrive_before_they_were_sent(tmp_path: Path) -> None:
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
    assert "clock" not in run("merge", "--logs", EXAMPLE).stderr


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
    assert "No line with a time: nothing to report." in result.stdout
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
