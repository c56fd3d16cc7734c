"""The file: what is written is read back, what no run can have written is refused."""

from pathlib import Path

import orjson
import pytest

from tests.histories.history import HistoryWriter, MalformedHistoryError, read, read_file
from tests.histories.notation import lines

HEADER = {"seed": 1, "source": "ours", "version": "", "brokers": 3, "client": "", "options": {}}


@pytest.mark.spec("HIS-5", "HIS-6", "HIS-7")
def test_what_a_writer_wrote_is_read_back(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        writer.write(0, "invoke", "mixed", [["send", 3, 7], ["poll"], ["send", 3, 8], ["offsets", None]])
        writer.write("nemesis", "info", "fault", {"kind": "kill"})
        told = [["send", 3, [5, 7], "ok"], ["poll", {3: [[5, 7], [6, None]]}], ["send", 3, [None, 8], "info"]]
        where = {"node": 2, "group": "g", "member": "m1", "generation": 4}
        event = {"what": "assigned", "keys": [3], "generation": 4, "time": 9}
        writer.write(0, "ok", "mixed", [*told, ["offsets", {3: 7}, "ok"]], **where, rebalance=[event])
    history = read_file(tmp_path / "h")
    (operation,) = history.operations
    assert operation.sends == [(3, 7, 5, "ok", None), (3, 8, None, "info", None)]
    assert operation.polls[0].runs == {3: ((5, 6), (7, None))}
    assert operation.commits == [({3: 7}, "ok")]
    assert (operation.group, operation.member, operation.generation) == ("g", "m1", 4)
    assert operation.rebalance == [("assigned", (3,), 4, 9)]
    assert len(history.faults) == 1
    assert history.times == sorted(history.times)


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
