"""What check-history says, and how it ends; what is allowed by the header alone."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.faults.world import FLUSHED, OPTIONS
from tests.histories.analyser.allowed import Deaths, why_allowed
from tests.histories.analyser.graph import PASSES
from tests.histories.analyser.notation import history, lines
from tests.histories.analyser.verdict import judge
from tests.histories.analyser.versions import Finding
from tests.histories.clients.client import Cell
from tests.histories.history import read
from tests.histories.matrix import broker_options, topic_configs, unsafe
from tests.paths import ROOT

READ = "; 1 ends x:0..1 ; 1 final x:1"
IN_TRANSACTIONS: dict[str, object] = {"idempotent": True, "transactional": True, "client": "confluent-kafka"}


@pytest.mark.spec("HIS-4", "HIS-1", "HIS-14")
@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (f"0 s x=a@0 ; 1 p x:a@0 {READ}", 0, "no anomaly that is not allowed"),
        (f"0 s x=a@0 ; 1 p x:b@0 {READ}", 1, "ANOMALY: inconsistent-offsets 1 times: offset 0 of key 0 held 97 and 98"),
        ("", 2, "no header"),
        ("0i s x=a@? ; 0i s x=b@?", 2, "line 2 is of process 0, which has ended"),
        ("0 s x=a@0 ; 1i s x=b@? ; 2i s x=c@? ; 3 p x:a@0", 3, "only 1 of 3 sends were acknowledged"),
        (f"0 s x=a@0 ; 2i s x=c@? ; 3 p x:a@0 {READ}", 0, "operations: ends ok 1, final ok 1, poll ok 1, send info 1,"),
        ("0 s x=a@0 ; 0 s y=b@0 ; 1 p x:a@0", 3, "keys 1 were never polled"),
        (
            "0 s x=a@0 ; 0 s y=b@0 ; 1 p x:a@0 ; 1 ends x:0..1,y:0..0 ; 1 final x:1,y:0",
            1,
            "ANOMALY: unseen 1 times: 98",
        ),
        (
            "0 s x=a@0 ; 0 s y=b@0 ; 1 p x:a@0 y:b@0 ; 1 ends x:0..1 ; 1 final x:1",
            3,
            "keys 1 were not read to their ends",
        ),
    ],
    ids=["clean", "found", "no header", "malformed", "few sends", "just half", "not polled", "nothing left", "unread"],
)
def test_how_check_history_ends(tmp_path: Path, text: str, code: int, says: str) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(lines(text)) if text else b"")
    said = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.histories", str(file)],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        said.append(done.stdout + done.stderr)
    assert says in said[0]
    assert said[0] == said[1]


@pytest.mark.spec("HIS-4", "HIS-20")
def test_the_command_says_a_line_for_each_kind_and_all_as_json(tmp_path: Path) -> None:
    text = "0 s x=a@0 ; 1 p x:Z@0 ; 1 p x:Y@1 ; 0 s x=c@2 ; 0f s x=d@? ; 2 p x:c@2 ; 3 p x:c@9"
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(lines(text)))
    said, as_json = (
        subprocess.run(
            [sys.executable, "-m", "tests.histories", str(file), *flags],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )
        for flags in ((), ("--json",))
    )  # fmt: skip
    assert said.returncode == as_json.returncode == 1
    assert said.stdout.splitlines() == [
        "operations: poll ok 4, send fail 1, send ok 2",
        "allowed (a producer that is not idempotent sends again): duplicate 1 times: "
        "99 lies at 2 and 9 of key 0 (unlabelled) [lines 7, 11]",
        "ANOMALY: inconsistent-offsets 1 times: offset 0 of key 0 held 90 and 97 [lines 1, 3]",
        "ANOMALY: lost-write 1 times: 97 at 0 of key 0 was never read, but 2 was [lines 1]",
        "ANOMALY: phantom 2 times: 90 was polled of key 0, to which nobody sent it [lines 3]",
    ]
    document = json.loads(as_json.stdout)
    assert document == json.loads(json.dumps(judge(history(text)).document()))
    assert [len(anomaly["findings"]) for anomaly in document["anomalies"]] == [1, 1, 1, 2]


@pytest.mark.spec("HIS-4")
def test_of_each_kind_the_smallest_instance_is_told() -> None:
    """The fewest lines, and of those the first; the page's reader begins there."""
    held_three, held_two = "1 p x:b@0 ; 2 p x:c@0", "3 p x:f@4"
    verdict = judge(history(f"0 s x=a@0 ; 0 s x=e@4 ; 4 p x:a@0,e@4 ; {held_three} ; {held_two}"))
    (anomaly,) = [each for each in verdict.anomalies if each.kind == "inconsistent-offsets"]
    sizes = [len(finding.lines) for finding in anomaly.findings]
    assert sizes[0] > sizes[1] and anomaly.smallest is anomaly.findings[1]
    assert f"inconsistent-offsets 2 times: {anomaly.smallest.text}" in "\n".join(verdict.lines())


@pytest.mark.spec("HIS-4")
@pytest.mark.skipif(not (ROOT / ".venv" / "installed-test").exists(), reason="scripts/setup would install first")
def test_the_script_passes_on_what_the_checker_says(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b"".join(lines(f"0 s x=a@0 ; 1 p x:b@0 {READ}")))
    script = ROOT / "scripts" / "check-history"
    done = subprocess.run([script, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ANOMALY: inconsistent-offsets 1 times" in done.stdout, done.stdout + done.stderr
    usage = subprocess.run([script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert usage.returncode == 2 and "usage: scripts/check-history" in usage.stderr


@pytest.mark.spec("HIS-1")
def test_the_analyser_imports_no_client_and_no_broker() -> None:
    parts = ("versions", "reads", "sends", "atomic", "groups", "lags", "logs", "ends", "graph", "allowed", "verdict")
    analyser = ("history", *(f"analyser.{name}" for name in parts))
    imported = set[str]()
    for name in analyser:
        path = ROOT.joinpath("tests", "histories", *name.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                of_a_room = node.module in ("tests.histories", "tests.histories.analyser")
                imported |= {f"{node.module}.{a.name}" if of_a_room else str(node.module) for a in node.names}
    own = {f"tests.histories.{name}" for name in analyser}
    others = {name.partition(".")[0] for name in imported - own}
    assert others <= sys.stdlib_module_names | {"orjson"}
    assert not others & {"time", "datetime", "random", "secrets", "uuid", "threading", "socket", "subprocess", "os"}


@pytest.mark.spec("HIS-1")
def test_whoever_wrote_a_history_all_its_anomalies_are_the_same() -> None:
    """Only whether some are allowed follows from the source."""
    text = "0 s x=a@0 ; 0 s y=c@0 ; 1 p x:b@0 ; 2 p x:Z@1 ; 3 ends x:0..2,y:0..1 ; 3 final x:1,y:1"
    header, *rest = lines(text)
    found = [
        judge(read([orjson.dumps(orjson.loads(header) | {"source": source}) + b"\n", *rest])).anomalies
        for source in ("ours", "kafka", "simulation")
    ]
    assert found[0] == found[2] and [a.kind for a in found[0]] == [a.kind for a in found[1]]
    assert [a.findings for a in found[0]] == [a.findings for a in found[1]]


@pytest.mark.spec("HIS-4")
def test_all_findings_can_be_had_as_json() -> None:
    document = judge(history("0 s x=a@0 ; 1 p x:b@0 ; 2 p x:Z@1")).document()
    assert {anomaly["kind"] for anomaly in document["anomalies"]} == {"inconsistent-offsets", "lost-write", "phantom"}
    assert json.loads(json.dumps(document)) == json.loads(json.dumps(document))


@pytest.mark.spec("HIS-40", "HIS-20", "HIS-26")
@pytest.mark.parametrize(
    ("kind", "label", "options", "source", "allowed"),
    [
        ("G0", "", {}, "ours", True),
        ("G1c-ww", "", {}, "ours", True),
        ("int-send-skip", "", {}, "ours", True),
        ("duplicate", "same epoch", {}, "ours", True),
        ("duplicate", "same epoch", {"idempotent": True}, "ours", False),
        ("duplicate", "unlabelled", {"idempotent": True}, "ours", False),
        ("duplicate", "no producer id", {"idempotent": True, "client": "confluent-kafka"}, "ours", False),
        ("duplicate", "another producer", {"idempotent": True, "client": "confluent-kafka"}, "ours", False),
        ("duplicate", "renumbered", {"idempotent": True, "client": "confluent-kafka"}, "ours", True),
        ("duplicate", "renumbered", {"idempotent": True, "client": "simulated"}, "ours", True),
        ("duplicate", "renumbered", {"idempotent": True, "client": "aiokafka"}, "ours", False),
        ("duplicate", "renumbered in a transaction", {**IN_TRANSACTIONS, "isolation": "read_committed"}, "ours", False),
        (
            "duplicate",
            "renumbered in a transaction",
            {**IN_TRANSACTIONS, "isolation": "read_uncommitted"},
            "ours",
            True,
        ),
        ("duplicate", "renumbered", {**IN_TRANSACTIONS, "isolation": "read_committed"}, "ours", True),  # without one
        ("start-backwards", "fetched ahead", {"client": "confluent-kafka"}, "ours", True),
        ("start-backwards", "fetched ahead", {"client": "kafka-python"}, "ours", True),
        ("start-backwards", "fetched ahead", {"client": "simulated"}, "ours", False),
        ("start-backwards", "", {"client": "confluent-kafka"}, "ours", False),
        ("int-nonmonotonic-send", "", {"in_flight": 5}, "ours", True),
        ("int-nonmonotonic-send", "", {"in_flight": 5, "idempotent": True}, "ours", False),
        ("G1a", "", {"isolation": "read_uncommitted"}, "ours", True),
        ("G1a", "", {"isolation": "read_committed"}, "ours", False),
        ("eos-duplicate", "", {}, "ours", True),
        ("eos-duplicate", "", {"transactional": True}, "ours", False),
        ("eos-duplicate", "", {"transactional": True, "isolation": "read_uncommitted"}, "ours", True),
        ("commit-lost", "", {"transactional": True, "isolation": "read_uncommitted"}, "ours", True),
        ("commit-lost", "", {"isolation": "read_uncommitted"}, "ours", False),
        ("stuck", "", {}, "kafka", True),
        ("stuck", "", {}, "ours", False),
        ("lost-write", "", {"acks": "all"}, "ours", False),
        ("lost-write", "", {"acks": 1}, "ours", True),
        ("unseen", "", {"min_isr": 1}, "ours", False),  # nobody died
        ("G0-realtime", "", {"unclean": True}, "ours", True),
        ("G0-process", "", {"unclean": True}, "ours", True),
        ("nonmonotonic-send", "", {"acks": 1}, "ours", True),
        ("nonmonotonic-send", "", {}, "ours", False),
        ("phantom", "", {"unclean": True, "acks": 0}, "ours", False),
        ("G1a", "", {"late_end_txn": True}, "kafka", True),
        ("G1a", "", {"late_end_txn": True}, "ours", False),
    ],
)
def test_what_is_allowed_is_said_by_the_header(
    kind: str, label: str, options: dict[str, object], source: str, allowed: bool
) -> None:
    finding = Finding(kind, 0, "", (), label)
    assert (why_allowed(finding, {"source": source, "version": "2.8.2", "options": options}) is not None) == allowed


ALWAYS = frozenset({"int-send-skip", "G0", "G1c-ww"})
OF_TRANSACTIONS = frozenset(
    {"G1a", "precommitted-read", "early-read", "G1c", "G1c-process", "G1c-realtime", "torn-transaction"}
)
OF_UNSAFE_WRITES = frozenset(
    {"lost-write", "unseen", "inconsistent-offsets", "poll-skip", "int-poll-skip", "nonmonotonic-poll"}
    | {"int-nonmonotonic-poll", "end-backwards", "nonmonotonic-send", "int-nonmonotonic-send"}
    | {"G0-process", "G0-realtime"}
)
OTHERS = frozenset(
    {"phantom", "duplicate", "stuck", "start-backwards", "compacted-lost"}
    | {"tombstone-skip", "owner-overlap", "zombie-commit", "commit-lost", "commit-backwards"}
    | {"resume-skip", "group-skip", "eos-duplicate", "eos-loss"}
)
SAFE: dict[str, object] = {
    "acks": "all",
    "idempotent": True,
    "in_flight": 5,
    "transactional": True,
    "isolation": "read_committed",
    "min_isr": 2,
    "unclean": False,
    "faults": ["kill"],
}


@pytest.mark.spec("HIS-40", "HIS-26")
@pytest.mark.parametrize(
    ("options", "source", "more"),
    [
        ({}, "ours", set()),
        ({}, "simulation", set()),
        ({"idempotent": False}, "ours", {"duplicate", "int-nonmonotonic-send"}),
        ({"idempotent": False, "in_flight": 1}, "ours", {"duplicate"}),
        ({"transactional": False}, "ours", {"eos-duplicate"}),
        ({"isolation": "read_uncommitted", "transactional": False}, "ours", OF_TRANSACTIONS | {"eos-duplicate"}),
        (
            {"isolation": "read_uncommitted"},
            "ours",
            OF_TRANSACTIONS | {"eos-duplicate", "commit-lost", "commit-backwards"},
        ),
        ({"acks": 1}, "ours", OF_UNSAFE_WRITES),
        ({"acks": 0}, "ours", OF_UNSAFE_WRITES),
        ({"acks": -1}, "ours", set()),
        ({"unclean": True}, "ours", OF_UNSAFE_WRITES),
        ({"min_isr": 1}, "ours", OF_UNSAFE_WRITES),
        ({}, "kafka", {"stuck"}),
        ({"late_end_txn": True}, "kafka", {"stuck", "G1a", "torn-transaction", "lost-write"}),
        ({"late_end_txn": True}, "ours", set()),
    ],
)
def test_by_each_header_these_kinds_are_allowed_and_no_others(
    options: dict[str, object], source: str, more: frozenset[str]
) -> None:
    kinds = ALWAYS | OF_TRANSACTIONS | OF_UNSAFE_WRITES | OTHERS
    header = {"source": source, "version": "3.9.1", "client": "confluent-kafka", "options": SAFE | options}
    killed = Deaths(killed=9)
    found = {kind for kind in kinds if why_allowed(Finding(kind, 0, "", (3,)), header, killed) is not None}
    assert found == ALWAYS | more


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(
    ("fault", "over", "down", "flushed", "allowed"),
    [
        ("power cut all 2", 2, None, False, True),
        ("power cut all 2", 1, None, False, False),  # it was acknowledged afterwards
        ("power cut all 2", 2, None, True, False),
        ("power cut all 2", 4, 2, False, True),
        ("power cut all 2", 4, 1, False, False),  # when brokers were up again, the last one not yet
        ("power cut 2", 2, None, False, False),
        ("kill all 2", 2, None, False, False),
    ],
)
def test_what_all_brokers_had_not_synced_when_their_power_was_cut_may_be_lost(
    fault: str, over: int, down: int | None, flushed: bool, allowed: bool
) -> None:
    """It was acknowledged in line 1; ``over``: the line at which the fault is over, ``down``: before which all were."""
    seen = history("0 s x=a@0 ; 0 s x=b@1 ; 1 p x:b@1", flushed=flushed)._replace(faults=_fault(fault, over, down))
    verdict = judge(seen)
    assert verdict.kinds() == {"lost-write"}
    assert bool(verdict.unallowed) is not allowed


def _fault(fault: str, over: int, down: int | None = None) -> list[Mapping[str, Any]]:
    """Return the two lines of a fault that begins at once."""
    told = {} if down is None else {"down": down}
    return [
        {"index": 0, "value": {"step": 0, "begins": True, "faults": [fault]}},
        {"index": over, "value": {"step": 0, "begins": False, "faults": [fault], **told}},
    ]


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(
    ("kind", "text", "down", "allowed"),
    [
        ("commit-lost", "0 o x:10 ; 1 committed x:7", 2, True),
        ("commit-lost", "0 o x:10 ; 1 committed x:7", 1, False),
        ("commit-lost", "0 o x:10 ; 0 o x:10 ; 1 committed x:7", 2, False),  # it was committed once more
        ("commit-lost", "0 o x:10 ; 1 p x:a@7", 4, True),  # behind the two lines of who sent a
        ("commit-lost", "0 o x:10 ; 1 p x:a@7", 3, False),
        ("commit-backwards", "0 committed x:7 ; 1 committed x:5", 2, True),
        ("commit-backwards", "0 committed x:7 ; 1 committed x:5", 1, False),
    ],
)
def test_commits_that_no_broker_had_synced_may_be_lost_whenever_that_is_seen(
    kind: str, text: str, down: int, allowed: bool
) -> None:
    """They were answered, or told, before the line ``down`` or not; that they are missing is told after it."""
    event = {"what": "assigned", "keys": [0], "generation": 5, "time": 4000}
    in_group = {
        number: {"group": "g", **({"rebalance": [event]} if "p x" in text and number else {})} for number in range(3)
    }
    verdict = judge(history(text, in_group)._replace(faults=_fault("power cut all 1", 2, down)))
    assert verdict.kinds() == {kind}
    assert bool(verdict.unallowed) is not allowed


_OLD_NS = 30_000_000_000


@pytest.mark.spec("HIS-37", "HIS-40")
@pytest.mark.parametrize(
    ("text", "fault", "later_ns", "kinds", "allowed"),
    [
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (0, 9), 0, "commit-lost", True),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:12", (0, 2), 0, "commit-lost", True),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", None, 0, "commit-lost", False),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (6, 7), 0, "commit-lost", False),  # begun later
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (0, 3), _OLD_NS - 1000, "commit-lost", True),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (0, 2), _OLD_NS - 1000, "commit-lost", False),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (0, 9), _OLD_NS - 1000, "commit-lost", True),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", (0, 9), _OLD_NS, "commit-lost", False),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7", (0, 9), 0, "commit-lost", False),  # never told again
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ∥ 2 committed x:10", (0, 9), 0, "commit-lost", False),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:9", (0, 9), 0, "commit-lost", False),
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:8 ; 2 committed x:10", (0, 9), 0, "commit-lost", False),  # never was
        ("0 o x:10 ; 1 committed x:7 ; 2 committed x:10 ; 0 o x:7", (0, 9), 0, "commit-lost", False),  # was not yet
        ("0 o x:7 ; 0 o x:10 ; 1 committed x:none ; 2 committed x:10", (0, 9), 0, "commit-lost", False),
        (
            "0 o x:7 ; 0i o x:10 ; 1 committed x:10 ; 1 committed x:7 ; 2 committed x:10",
            (0, 9),
            0,
            "commit-backwards",
            True,
        ),
        ("0 o x:7 ; 0i o x:10 ; 1 committed x:10 ; 1 committed x:7", (0, 9), 0, "commit-backwards", False),
    ],
)
def test_a_former_coordinator_may_tell_what_was_committed_of_late_if_it_is_told_again(
    text: str, fault: tuple[int, int] | None, later_ns: int, kinds: str, allowed: bool
) -> None:
    """A step of faults lasts from one line to another; answers are asked for ``later_ns`` later than they stand there."""
    seen = history(text, {number: {"group": "g"} for number in range(5)})
    for operation in seen.operations:
        if operation.f == "committed":
            operation.time_invoked += later_ns
            operation.time += later_ns
    seen.times.extend(range(seen.times[-1], seen.times[-1] + 10))
    faults = () if fault is None else zip(fault, (True, False), strict=True)
    lines: list[Mapping[str, Any]] = [
        {"index": line, "value": {"step": 0, "begins": begins, "faults": ["expire 1"]}} for line, begins in faults
    ]
    verdict = judge(seen._replace(faults=lines))
    assert verdict.kinds() == {kinds}
    assert bool(verdict.unallowed) is not allowed


@pytest.mark.spec("HIS-37", "HIS-40")
@pytest.mark.parametrize(
    ("told", "allowed"),
    [
        ([(1, True)], True),
        ([(1, True), (1, False)], False),
        ([(1, True), (2, True), (2, False)], True),
        ([(1, True), (2, True), (1, False), (2, False)], False),
        ([(1, True), ("upkeep of x", True), (1, False)], False),
        ([("upkeep of x", True)], False),
        ([(1, False)], False),
    ],
)
def test_a_step_of_faults_ends_by_its_own_line_and_chores_are_no_faults(
    told: list[tuple[int | str, bool]], allowed: bool
) -> None:
    """They begin and end with the first line, and the answer is asked for more than 30 s later."""
    seen = history("0 o x:7 ; 0 o x:10 ; 1 committed x:7 ; 2 committed x:10", {n: {"group": "g"} for n in range(4)})
    for operation in seen.operations[1:]:  # the newer one was committed of late
        operation.time_invoked += _OLD_NS
        operation.time += _OLD_NS
    lines: list[Mapping[str, Any]] = [
        {"index": 0, "value": {"step": step, "begins": begins, "faults": ["expire 1"]}} for step, begins in told
    ]
    verdict = judge(seen._replace(faults=lines))
    assert verdict.kinds() == {"commit-lost"}
    assert bool(verdict.unallowed) is not allowed


@pytest.mark.spec("HIS-37", "HIS-40")
def test_who_resumes_below_what_was_committed_is_not_excused_by_a_former_coordinator() -> None:
    event = {"what": "assigned", "keys": [0], "generation": 5, "time": 6000}
    in_group = {number: {"group": "g", **({"rebalance": [event]} if number == 2 else {})} for number in range(4)}
    seen = history("0 o x:7 ; 0 o x:10 ; 1 p x:a@7 ; 2 committed x:10", in_group)
    verdict = judge(seen._replace(faults=_fault("expire 1", 9)[:1]))
    assert "commit-lost" in {anomaly.kind for anomaly in verdict.unallowed}


@pytest.mark.spec("HIS-40")
def test_brokers_of_a_run_sync_each_batch_or_none_by_time() -> None:
    """So nothing is between: what a power cut of all may take is what was acknowledged before it, or nothing."""
    cells = [
        Cell("assign", "plain"),
        Cell("subscribe", "transactional", cleanup="compact"),
        unsafe(Cell("assign", "plain")),
    ]
    for options in (OPTIONS, *map(broker_options, cells), *map(topic_configs, cells)):
        assert not [name for name in options if "flush" in name]
    assert FLUSHED == {"log.flush.interval.messages": "1"}


@pytest.mark.spec("HIS-40")
def test_what_no_broker_has_any_more_are_markers_groups_and_offsets_too() -> None:
    kinds = ALWAYS | OF_TRANSACTIONS | OF_UNSAFE_WRITES | OTHERS
    header = {"source": "ours", "version": "", "client": "confluent-kafka", "options": SAFE}
    never = {
        *("phantom", "duplicate", "stuck", "start-backwards", "precommitted-read", "early-read"),
        *("G1c", "G1c-process", "G1c-realtime"),
    }
    for line, excused in ((3, kinds - never), (9, ALWAYS)):
        dark = Deaths(dark=9, killed=9)
        found = {kind for kind in kinds if why_allowed(Finding(kind, 0, "", (line,)), header, dark) is not None}
        assert found == excused
    flushed = {**header, "options": {**SAFE, "flushed": True}}
    assert {kind for kind in kinds if why_allowed(Finding(kind, 0, "", (3,)), flushed, Deaths(dark=9))} == ALWAYS


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(
    ("faults", "allowed"),
    [
        ([("kill 2", True), ("kill 2", False)], True),
        ([("kill all 2", True), ("kill all 2", False)], True),
        ([("tear 2", True), ("tear 2", False)], True),
        ([("power cut 2", True), ("power cut 2", False)], True),
        ([("starve 2", True), ("starve 2", False)], True),
        ([("outrun 2", True), ("outrun 2", False)], True),
        ([("disk 2", True), ("disk 2", False)], True),
        ([("slow disk 2", True), ("slow disk 2", False)], False),
        ([("failing disk 2", True), ("failing disk 2", False)], True),
        ([("kill 2", True)], True),  # it was still dead when the run ended
        ([("kill 1", True), ("kill 2", True), ("kill 1", False)], True),
        ([("stop 2", True), ("stop 2", False)], False),
        ([("freeze 2", True), ("freeze 2", False)], False),
        ([("isolate 2", True), ("expire 2", True), ("isolate 2", False), ("expire 2", False)], False),
        ([], False),
    ],
)
def test_with_one_in_sync_replica_a_value_may_be_lost_when_a_broker_is_killed_and_not_else(
    faults: list[tuple[str, bool]], allowed: bool
) -> None:
    """What the header calls faults is no kill; and with two of them a kill excuses nothing."""
    told: list[Mapping[str, Any]] = [
        {"index": 2 + n, "value": {"begins": begins, "faults": [f]}} for n, (f, begins) in enumerate(faults)
    ]
    for min_isr in (1, 2):
        seen = history("0 s x=a@0 ; 0 s x=b@1 ; 1 p x:b@1", min_isr=min_isr, faults=True)._replace(faults=told)
        verdict = judge(seen)
        assert verdict.kinds() == {"lost-write"}
        assert bool(verdict.unallowed) is not (allowed and min_isr == 1)


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(("begun", "allowed"), [(["kill 1"], False), (["kill 1", "kill 2"], True)])
def test_what_was_acknowledged_after_the_last_kill_may_not_be_lost(begun: list[str], allowed: bool) -> None:
    """It was in line 1, at which the first of them was over."""
    killed: list[Mapping[str, Any]] = [
        {"index": 0, "value": {"begins": True, "faults": begun}},
        {"index": 1, "value": {"begins": False, "faults": ["kill 1"]}},
    ]
    seen = history("0 s x=a@0 ; 0 s x=b@1 ; 1 p x:b@1", min_isr=1, faults=True)._replace(faults=killed)
    verdict = judge(seen)
    assert verdict.kinds() == {"lost-write"}
    assert bool(verdict.unallowed) is not allowed


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("2.8.2", True),
        ("3.9.1", True),
        ("4.0.0", False),
        ("4", False),
        ("10.1.0", False),
        ("", False),
        ("trunk", False),
    ],
)
def test_a_late_end_of_a_transaction_excuses_kafka_before_4_alone(version: str, known: bool) -> None:
    header = {"source": "kafka", "version": version, "options": {"late_end_txn": True}}
    for kind in ("G1a", "torn-transaction", "lost-write"):
        assert (why_allowed(Finding(kind, 0, "", ()), header) == "known of Kafka: KAFKA-17754") == known
    assert why_allowed(Finding("phantom", 0, "", ()), header) is None


@pytest.mark.spec("HIS-40")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "0 s x=a@9 ; 1 p x:a@9 ; 1 ends x:0..12 ; 1 final x:10",
            "allowed (known of Kafka: a leader may never take its followers back): stuck 1 times: ",
        ),
        (
            "0f [s x=a@0] ; 0 s x=b@1 ; 1 p x:a@0,b@1 ; 1 ends x:0..2 ; 1 final x:2",
            "allowed (known of Kafka: KAFKA-17754): G1a 1 times: ",
        ),
    ],
)
def test_what_is_allowed_to_the_control_alone_is_told_as_known(text: str, says: str) -> None:
    header, *rest = lines(text, late_end_txn=True)
    for source, found in (("kafka", True), ("ours", False), ("simulation", False)):
        of = {"source": source, "version": "3.9.1"}
        verdict = judge(read([orjson.dumps(orjson.loads(header) | of) + b"\n", *rest]))
        assert any(line.startswith(says) for line in verdict.lines()) == found
        assert any("known" in (anomaly.allowed or "") for anomaly in verdict.anomalies) == found
        assert bool(verdict.unallowed) is not found


class Asked(dict[str, Any]):
    """A mapping that notes what it was asked for."""

    def __init__(self, of: Mapping[str, Any], asked: set[str]) -> None:
        super().__init__(of)
        self._asked = asked

    def get(self, key: str, default: Any = None) -> Any:
        self._asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._asked.add(key)
        return super().__getitem__(key)


@pytest.mark.spec("HIS-40")
def test_a_run_cannot_be_told_to_forgive_more(tmp_path: Path) -> None:
    """Of a header nothing counts but what clients, topics and brokers were told; the command has no option for it."""
    of_header, of_options = set[str](), set[str]()
    for source in ("ours", "kafka"):
        for change in ({}, {"idempotent": False}, {"acks": 1}, {"min_isr": 1}, {"late_end_txn": True}):
            header = Asked({"source": source, "version": "3.9.1", "client": "", "options": {}}, of_header)
            header["options"] = Asked(SAFE | change, of_options)
            for kind in ALWAYS | OF_TRANSACTIONS | OF_UNSAFE_WRITES | OTHERS:
                why_allowed(Finding(kind, 0, "", (1,)), header)
    assert of_header == {"source", "version", "client", "options"}
    told = {"acks", "idempotent", "in_flight", "transactional", "isolation", "min_isr", "unclean", "client", "flushed"}
    assert of_options == told | {"late_end_txn"}
    file = tmp_path / "history.jsonl"
    more: dict[str, Any] = {"allow": ["lost-write"], "allowed": True, "forgive": "all", "known": ["lost-write"]}
    file.write_bytes(b"".join(lines("0 s x=a@0 ; 0 s x=b@1 ; 1 p x:b@1", **more)))
    for flags, code in (((), 1), (("--allow", "lost-write"), 2)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.histories", str(file), *flags],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.spec("HIS-40", "HIS-21")
@pytest.mark.parametrize(
    ("kind", "text", "offset"),
    [
        ("lost-write", "0 s x=a@2 ; 2 p x:c@5", 2),
        ("poll-skip", "0 p x:a@1,b@2 ; 1 p x:c@3 ; 0 p x:d@4", 3),
        ("int-poll-skip", "1 p x:b@2 ; 0 [p x:a@1 ; p x:c@3]", 2),
        ("unseen", "0 s x=a@4 ; 1 ends x:0..9 ; 1 final x:9", 4),
        ("torn-transaction", "0 [s x=a@4 ; s y=b@0] ; 1 p y:b@0 ; 1 ends x:0..9,y:0..2 ; 1 final x:9,y:2", 4),
    ],
)
def test_what_is_missing_below_an_offset_that_was_removed_is_no_anomaly(kind: str, text: str, offset: int) -> None:
    """Be that told by a deletion, also one of unknown outcome, or by the start of the log; at the offset it is one."""
    assert kind in judge(history(text)).kinds()
    for start, found in ((offset, True), (offset + 1, False)):
        for told in (f"7 delete x:{start}", f"7i delete x:{start}", f"7 ends x:{start}..9"):
            assert (kind in judge(history(f"{text} ; {told}")).kinds()) == found, told
    assert kind in judge(history(f"{text} ; 7f delete x:{offset + 1}")).kinds()


@pytest.mark.spec("HIS-40")
def test_no_kind_is_left_out_of_those() -> None:
    sources = [
        (ROOT / "tests" / "histories" / "analyser" / f"{name}.py").read_text()
        for name in ("lags", "logs", "ends", "atomic", "groups", "sends")
    ]
    found = {kind for source in sources for kind in re.findall(r'Finding\(\s*"([a-zA-Z0-9-]+)"', source)}
    found |= {f"{prefix}{kind}" for prefix in ("", "int-") for kind in ("nonmonotonic-poll", "poll-skip")}
    found |= {kind for each in PASSES for kind, _ in each.kinds}
    assert found == ALWAYS | OF_TRANSACTIONS | OF_UNSAFE_WRITES | OTHERS
