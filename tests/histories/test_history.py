"""The file: what is written is read back, what no run can have written is refused."""

import threading
import time
from pathlib import Path

import orjson
import pytest

from tests.histories.analyser.notation import HEADER, history, lines
from tests.histories.history import MalformedHistoryError, read, read_file
from tests.histories.writer import Header, HistoryWriter, Options


@pytest.mark.spec("HIS-5", "HIS-6", "HIS-7")
def test_what_a_writer_wrote_is_read_back(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        writer.write(0, "invoke", "mixed", [["send", 3, 7], ["poll"], ["send", 3, 8], ["offsets", None]])
        writer.write("nemesis", "info", "fault", {"kind": "kill"})
        told = [["send", 3, [5, 7], "ok"], ["poll", {3: [[5, 7], [6, None]]}], ["send", 3, [None, 8], "info"]]
        where = {"node": 2, "group": "g", "member": "m1", "generation": 4}
        event = {"what": "assigned", "keys": [3], "generation": 4, "time": 9}
        events = [event, event | {"part": 1}]
        writer.write(0, "ok", "mixed", [*told, ["offsets", {3: 7}, "ok"]], **where, rebalance=events)
    history = read_file(tmp_path / "h")
    (operation,) = history.operations
    assert operation.sends == [(3, 7, 5, "ok", None), (3, 8, None, "info", None)]
    assert operation.polls[0].runs == {3: ((5, 6), (7, None))}
    assert operation.commits == [({3: 7}, "ok")]
    assert (operation.group, operation.member, operation.generation) == ("g", "m1", 4)
    assert operation.rebalance == [("assigned", (3,), 4, 9, 0), ("assigned", (3,), 4, 9, 1)]
    assert len(history.faults) == 1
    assert history.times == sorted(history.times)


@pytest.mark.spec("HIS-5")
def test_a_line_is_in_the_file_as_soon_as_it_is_written_behind_a_header_that_tells_all(tmp_path: Path) -> None:
    file = tmp_path / "h"
    with HistoryWriter(file, HEADER) as writer:
        (first,) = map(orjson.loads, file.read_bytes().splitlines())
        assert first == {"history": 1, **HEADER}
        for count in range(1, 4):
            writer.write(count, "invoke", "poll", [["poll"]])
            assert len(file.read_bytes().splitlines()) == 1 + count
    told = {"history", "seed", "source", "version", "brokers", "client", "options"}
    assert set(first) == told == Header.__required_keys__ | {"history"}
    asked = {"acks", "idempotent", "in_flight", "transactional", "isolation", "via", "reset", "min_isr", "unclean"}
    assert asked | {"cleanup", "delete_retention_ms", "faults"} <= Options.__required_keys__


@pytest.mark.spec("HIS-6")
def test_lines_are_numbered_and_timed_in_the_order_in_which_threads_write_them(tmp_path: Path) -> None:
    """The clock is read where the number is given, so that neither goes back."""
    before = time.monotonic_ns()
    with HistoryWriter(tmp_path / "h", HEADER) as writer:

        def write(process: int) -> None:
            for _ in range(200):
                writer.write(process, "invoke", "poll", [["poll"]])
                writer.write(process, "ok", "poll", [["poll", {}]])

        threads = [threading.Thread(target=write, args=(process,)) for process in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = [orjson.loads(line) for line in (tmp_path / "h").read_bytes().splitlines()[1:]]
    assert [entry["index"] for entry in entries] == list(range(8 * 200 * 2))
    times = [entry["time"] for entry in entries]
    assert times == sorted(times) and before <= times[0] and times[-1] <= time.monotonic_ns()
    found = read_file(tmp_path / "h").operations
    assert {(each.process, each.type, each.f) for each in found} == {(n, "ok", "poll") for n in range(8)}
    assert all(entries[each.invoked]["process"] == entries[each.completed]["process"] for each in found)


@pytest.mark.spec("HIS-6")
def test_each_operation_there_is_can_be_told_and_what_an_operation_says_besides() -> None:
    told = history(
        "0 s x=a@0 ; 0 p x:a@0 ; 0 (s x=b@1 ; p) ; 1 [s x=c@2 ; p] ; 0 assign x ; 2 subscribe x ; 2 o x:1 ; 3 committed x:1"
        " ; 3 ends x:0..3 ; 3 delete x:1 ; 3 final x:3",
        extras={3: {"ended_at": 7_500, "node": 2, "error": {"class": "KafkaException", "code": 47}}},
    )
    facts = {"committed", "ends", "delete", "final"}
    assert [one.f for one in told.operations] == [
        *("send", "poll", "mixed", "txn", "assign", "subscribe", "commit"),
        *("committed", "ends", "delete", "final"),
    ]
    assert told.operations[3].ended_at == 7_500 and told.operations[0].ended_at is None
    assert [one.value for one in told.operations if one.f in facts] == [{0: 1}, {0: [0, 3]}, {0: 1}, {0: 3}]
    assert [one.process for one in told.operations] == [0, 0, 0, 1, 0, 2, 2, 3, 3, 3, 3]
    ended, crashed = (lines("0 s x=a@0 ; 0 s x=b@1", extras={1: {"end": True}}), lines("0 s x=a@0"))
    assert [one.type for one in read(ended).operations] == ["ok", "ok"]
    crash = [
        {"index": 2 + n, "time": 9_000, "process": 0, "type": kind, "f": "crash", "value": None}
        for n, kind in enumerate(("invoke", "info"))
    ]
    assert [one.f for one in read([*crashed, *(orjson.dumps(e) + b"\n" for e in crash)]).operations] == [
        "send",
        "crash",
    ]


@pytest.mark.spec("HIS-7")
def test_each_part_of_an_operation_comes_out_by_itself() -> None:
    """Also of one that failed, or whose outcome is not known: what it had learned before stays."""
    text = "0 s x=a@? ; 0 s x=-98@1 ; 1 p x:a@0,-98@1 ; 2i (s x=c@2 ; p x:a@0 ; o x:1) ; 3f (s x=d@? ; p x:a@0)"
    acknowledged, tombstone, polled, unknown, failed = history(text).operations
    assert acknowledged.sends == [(0, 97, None, "ok", None)]  # without a place, as acks=0 is
    assert tombstone.sends == [(0, -98, 1, "ok", None)]
    assert polled.polls[0].runs == {0: ((0, 1), (97, -98))}
    assert (unknown.type, unknown.sends, unknown.commits) == (
        "info", [(0, 99, 2, "info", None)], [({0: 1}, "info")],
    )  # fmt: skip
    assert unknown.polls[0].runs == failed.polls[0].runs == {0: ((0,), (97,))}
    assert (failed.type, failed.sends) == ("fail", [(0, 100, None, "fail", None)])
    entries = [
        {"index": n, "time": n, "process": 0, "type": kind, "f": "commit", "value": [value]}
        for n, (kind, value) in enumerate(
            [("invoke", ["offsets", {"0": 4}]), ("ok", ["offsets", {"0": 4}, "ok"])]  # named when it was invoked
        )
    ]
    header = lines("0 s x=a@0")[0]
    (named,) = read([header, *(orjson.dumps(entry) + b"\n" for entry in entries)]).operations
    assert named.commits == [({0: 4}, "ok")]


@pytest.mark.spec("HIS-5", "HIS-14")
def test_a_torn_last_line_is_dropped_and_its_operation_is_unknown() -> None:
    written = lines("0 s x=a@0 ; 1 p x:a@0")
    written[-1] = written[-1][:20]
    sent, polled = read(written).operations
    assert (sent.type, polled.type) == ("ok", "info")


@pytest.mark.spec("HIS-14", "HIS-10")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda e: e.pop(0), "line 0 calls itself 1"),
        (lambda e: e[1].update(process=5), "line 1 completes what was not invoked"),
        (lambda e: e[2].update(value=[["send", 0, 97]]), "line 2 sends 97 a second time"),
        (lambda e: e[1].update(value=[["send", 1, [0, 97], "ok"]]), "line 1 changes what was invoked"),
        (lambda e: e[1].update(value=[]), "line 1 changes what was invoked"),
        (lambda e: e[1].update(value=[["send", 0, [0, 99], "ok"]]), "line 1 changes what was invoked"),
        (lambda e: e[3].update(time=0), "line 3 goes back in time"),
        (lambda e: e[2].update(f="bend"), "line 2 has the unknown f 'bend'"),
        (lambda e: e[1].update(type="maybe"), "line 1 has the unknown type 'maybe'"),
        (lambda e: e[1].update(type="info"), "line 2 is of process 0, which has ended"),
        (lambda e: e[1].update(end=True), "line 2 is of process 0, which has ended"),
        (lambda e: e[1].update(type="invoke"), "line 1 overlaps another operation of process 0"),
        (lambda e: e[1].pop("time"), "line 1 lacks index, time, process, type or f"),
        (lambda e: e[1].update(f="mixed"), "line 1 completes what was not invoked"),
        (lambda e: [one.update(f="crash") for one in e[:2]], "line 2 is of process 0, which has ended"),
        (
            lambda e: [
                one.update(value=[part]) for one, part in zip(e, (["poll"], ["offsets", {}, "ok"]), strict=False)
            ],
            "line 1 changes what was invoked",
        ),
        (
            lambda e: [one.update(value=[["offsets", {"0": to}, "ok"]]) for to, one in enumerate(e[:2])],
            "line 1 changes what was invoked",
        ),
        (lambda e: e.insert(2, e[1] | {"index": 2}), "line 2 completes what was not invoked"),
    ],
    ids=range(18),
)
def test_what_no_run_writes_is_refused_with_its_line(change: object, why: str) -> None:
    header, *entries = map(orjson.loads, lines("0 s x=a@0 ; 0 s x=b@1"))
    change(entries)  # type: ignore[operator]
    with pytest.raises(MalformedHistoryError, match=why):
        read(orjson.dumps(entry) + b"\n" for entry in (header, *entries))


@pytest.mark.spec("HIS-5")
@pytest.mark.parametrize("first", [b"", b"{}\n", b'{"history": 2, "options": {}}\n'])
def test_a_file_without_a_header_is_no_history(first: bytes) -> None:
    with pytest.raises(MalformedHistoryError, match="no header"):
        read([first])
