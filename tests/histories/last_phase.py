"""What a history has to say of its last phase (HIS-43), whoever played it."""

from pathlib import Path

import orjson

from tests.histories.history import OK, History, Operation, read_file

_FIRST_READER = 1_000_000
_FIRST_DELETER = 900_000


def check(file: Path, workers: int) -> None:
    """Check that workers were over, and clients made for it read each key beyond all that was shown of it."""
    history = read_file(file)
    by_workers = [o for o in history.operations if isinstance(o.process, int) and o.process < _FIRST_DELETER]
    readers = [o for o in history.operations if isinstance(o.process, int) and o.process >= _FIRST_READER]
    assert max(o.completed for o in by_workers) < min(o.invoked for o in readers), "every worker is over"
    _check_workers(file, workers)
    assert all(line["index"] < readers[0].invoked for line in history.faults), "and so is every fault"
    assert [line["value"]["begins"] for line in history.faults].count(True) * 2 == len(history.faults)
    assigned = [o for o in readers if o.f == "assign"]
    assert assigned and all(o.from_start for o in assigned)
    assert len({o.process for o in assigned}) == len(assigned), "each attempt has a client of its own"
    _check_positions(history, readers)
    told = [o.f for o in readers if o.f in ("final", "committed", "ends", "batches")]
    asked = told[len(told) - told[::-1].index("final") :]
    assert asked == ["committed"] * (len(asked) - 2) + ["ends", "batches"]
    assert all(o.type == OK for o in readers if o.f == "batches")


def _check_workers(file: Path, workers: int) -> None:
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()[1:]]
    own = [line for line in lines if isinstance(line["process"], int) and line["process"] < _FIRST_DELETER]
    for number in range(workers):
        last = [line for line in own if line["process"] % workers == number][-1]
        assert last["type"] != "invoke" and (last["f"] == "crash" or last.get("end")), f"worker {number} went on"


def _check_positions(history: History, readers: list[Operation]) -> None:
    """Check that each key's last position passed the highest offset that any operation or ``ends`` has shown."""
    finals = {key: at for o in readers if o.f == "final" for key, at in o.value.items()}
    shown: dict[int, int] = {}
    for operation in history.operations:
        if operation.f == "ends" and operation.type == OK:
            shown |= {key: max(shown.get(key, 0), end) for key, (_, end) in operation.value.items()}
        for poll in operation.polls:
            shown |= {key: max(shown.get(key, 0), max(offsets) + 1) for key, (offsets, _) in poll.runs.items()}
        for send in operation.sends:
            if send.offset is not None:
                shown[send.key] = max(shown.get(send.key, 0), send.offset + 1)
    assert shown
    assert {key for key, at in shown.items() if finals.get(key, -1) < at} == set()
