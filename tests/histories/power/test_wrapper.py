"""A process that the wrapper starts: killed, what it had synced is known; its clock and its disk are the harness's."""

import contextlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from random import Random

import pytest

from tests.histories.power import control, journal
from tests.histories.power.control import Troubles
from tests.histories.power.noting import Wrote
from tests.paths import ROOT

_APPENDS = """
import os, sys
from pathlib import Path
root = Path(sys.argv[1])
log = root / "log"
fd = os.open(root, os.O_RDONLY)
with log.open("ab", buffering=0) as file:
    os.fsync(fd)
    number = log.stat().st_size // 8
    while True:
        for _ in range(5):
            file.write(b"%7d\\n" % number)
            number += 1
        if sys.argv[2] == "synced":
            os.fsync(file.fileno())
        print(number, flush=True)
        if sys.argv[2] == "waits":
            sys.stdin.read()
"""

_TELLS = """
import datetime, os, sys, time
from pathlib import Path
told = datetime.datetime
print(time.time(), time.time_ns(), told.now(datetime.UTC).timestamp(), told.now().timestamp())
assert isinstance(told.min, told) and isinstance(told.now(), told) and not isinstance(1, told)
with Path(sys.argv[1], "file").open("wb", buffering=0) as file:
    for number in range(5):
        try:
            file.write(b"x")
        except OSError as e:
            print(number, e.errno)
    began = time.monotonic()
    os.fsync(file.fileno())
    print(time.monotonic() - began)
sys.exit(7)
"""

_WRITES = """
import os, sys
from pathlib import Path
for name in sys.argv[2].split(","):
    path = Path(sys.argv[1], name)
    path.parent.mkdir(exist_ok=True)
    try:
        with path.open("ab", buffering=0) as file:
            file.write(b"x")
    except OSError as e:
        print(name, e.errno)
"""


class Place:
    """The directories of one process: what it works in, and what is noted beside."""

    def __init__(self, directory: Path, program: str) -> None:
        self.root, self.journal, self.control = directory / "root", directory / "journal", directory / "control"
        self._modules = directory / "modules"
        for path in (self.root, self._modules):
            path.mkdir()
        (self._modules / "program_of_a_test.py").write_text(program)
        journal.settle(self.journal, self.root)
        control.put(self.control, Troubles())

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start the program; it is killed at the end."""
        command = [sys.executable, "-m", "tests.histories.power.wrapper", str(self.journal), str(self.control)]
        command += [str(self.root), "program_of_a_test", str(self.root), *arguments]
        paths = os.pathsep.join((str(self._modules), str(ROOT)))
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.kill()

    def lefts(self, seeds: int) -> list[bytes]:
        """Return what power cuts may leave of the log."""
        disk = journal.disk_of(self.journal, self.root)
        disk.find_unnoted(Random(0))
        drawn = (disk.left(Random(seed))[PurePath("log")] for seed in range(seeds))
        return [data for data in drawn if data is not None]


def _numbers(process: subprocess.Popen[str], count: int) -> int:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    return int(lines[-1])


@pytest.mark.spec("HIS-47")
def test_after_kill_nine_it_is_known_what_was_synced(tmp_path: Path) -> None:
    place = Place(tmp_path, _APPENDS)
    synced = 0
    for lives in (1, 2):  # each goes on behind what the one before wrote
        with place.started("synced") as process:
            synced = _numbers(process, 20)
        written = (place.root / "log").read_bytes()
        lefts = place.lefts(20)
        assert all(len(left) >= 8 * synced for left in lefts), lives
        assert all(written.startswith(left.rstrip(b"\0")) for left in lefts), lives
    assert synced >= 200


@pytest.mark.spec("HIS-47")
def test_what_a_life_was_killed_before_it_had_noted_the_next_finds_and_syncs(tmp_path: Path) -> None:
    place = Place(tmp_path, _APPENDS)
    with place.started("synced") as process:
        _numbers(process, 2)
    (life,) = [path for path in place.journal.iterdir() if path.name == "000001"]
    with life.open("rb") as file:
        ends, last = [0], 0
        with contextlib.suppress(EOFError):
            while True:
                if isinstance(pickle.load(file), Wrote):
                    last = ends[-1]
                ends.append(file.tell())
    os.truncate(life, last)  # as if it had died there
    with place.started("synced") as process:
        synced = _numbers(process, 2)
    written = (place.root / "log").read_bytes()
    for left in place.lefts(50):
        assert len(left) >= 8 * synced and written.startswith(left.rstrip(b"\0"))


@pytest.mark.spec("HIS-47")
def test_what_one_life_did_not_sync_the_next_may_lose(tmp_path: Path) -> None:
    place = Place(tmp_path, _APPENDS)
    for _ in (1, 2):
        with place.started("waits") as process:
            _numbers(process, 1)
    assert (place.root / "log").stat().st_size == 80
    sizes = {len(left.rstrip(b"\0")) for left in place.lefts(200)}
    assert any(size < 40 for size in sizes) and any(40 < size < 80 for size in sizes), "of both lives"

    journal.disk_of(place.journal, place.root).cut_power(Random(7))
    found = (place.root / "log").read_bytes()
    journal.settle(place.journal, place.root)
    assert set(place.lefts(20)) == {found}, "what a power cut has left is durable"


@pytest.mark.spec("HIS-47")
def test_a_process_suffers_from_its_machine_and_knows_nothing_of_it(tmp_path: Path) -> None:
    place = Place(tmp_path, _TELLS)
    since = time.monotonic() - 1000
    troubles = Troubles(leap_s=-1800, drift=0.5, since_s=since, sync_s=0.2, failing_write=3)
    control.put(place.control, troubles)
    before = time.time() + troubles.ahead_s
    with place.started() as process:
        said, _ = process.communicate()
    after = time.time() + troubles.ahead_s
    clocks, *failed, synced = said.splitlines()
    seconds, nanoseconds, utc, local = clocks.split()
    assert before <= float(seconds) <= after
    assert before - 1e-6 <= float(utc) <= after and before - 1e-6 <= float(local) <= after
    assert before <= int(nanoseconds) / 1e9 <= after
    assert failed == ["2 5", "3 5", "4 5"], "from the third write on, EIO"
    assert float(synced) >= 0.2
    assert process.returncode == 7
    assert (place.root / "file").read_bytes() == b"xx"


@pytest.mark.spec("HIS-47")
def test_the_disk_fails_from_a_write_on_in_one_directory_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, _WRITES)
    control.put(place.control, Troubles(failing_write=3, failing_in="t-1"))
    with place.started("t-1/log,t-0/log,t-1/log,t-0/log,t-10/log,t-1/index,t-0/log,t-1/log") as process:
        said, _ = process.communicate()
    assert said.splitlines() == ["t-1/index 5", "t-1/log 5"]
    sizes = {str(path.relative_to(place.root)): path.stat().st_size for path in place.root.glob("*/*")}
    assert sizes == {"t-1/log": 2, "t-0/log": 3, "t-10/log": 1, "t-1/index": 0}
