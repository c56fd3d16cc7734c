"""Plans played by processes of their own, one after the other, until time is over; the last that failed is kept."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.histories.kept.keeping import VERDICT
from tests.histories.kept.plan import Plan, written
from tests.histories.kept.shrinking import TimeOverError
from tests.histories.mutants import found_in

SHRUNK: Final = "shrunk"
_LONGEST_S: Final = 1500.0  # of one run
_ENDING_S: Final = 240.0  # for what is given up to end its brokers, and to leave what there is of it


class Player:
    """Plays below ``directory``, where the last run that showed one of these kinds stays, as ``shrunk``."""

    def __init__(self, directory: Path, kinds: Collection[str], over: float) -> None:
        """``over``: the ``time.monotonic()`` at which the run under way is given up, and no other is begun."""
        self._directory, self._kinds, self._over = directory, set(kinds), over
        self._playing = directory / "shrinking"

    def __call__(self, plan: Plan) -> set[str]:
        """Play a plan, return the kinds that it showed: none where it did not end. Raises TimeOverError."""
        shutil.rmtree(self._playing, ignore_errors=True)
        self._playing.mkdir()
        (schedule := self._playing / "schedule.json").write_bytes(written(plan))
        left_s = self._over - time.monotonic()
        if left_s <= 0:
            raise TimeOverError
        run = self._playing / "run"
        environment = {**os.environ, "TMPDIR": str(self._playing)}  # its line in the register goes with it
        with (self._playing / "output.txt").open("wb") as output:
            command = [sys.executable, "-m", "tests.histories.run", "--schedule", str(schedule), "--keep", str(run)]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
            try:
                process.wait(min(left_s, _LONGEST_S))
            except subprocess.TimeoutExpired:
                if left_s <= _LONGEST_S:
                    raise TimeOverError from None
                return set()
            finally:
                _end(process)
                _free_disks(run)
        found = found_in((run / VERDICT).read_text()) if (run / VERDICT).exists() else set[str]()
        if found & self._kinds:
            shutil.rmtree(self._directory / SHRUNK, ignore_errors=True)
            run.rename(self._directory / SHRUNK)
        return found

    def close(self) -> None:
        """Leave nothing of the runs that showed nothing."""
        shutil.rmtree(self._playing, ignore_errors=True)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a run that goes on: it ends its brokers, unless it hangs; then their guardian does."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_disks(run: Path) -> None:
    """Let go of the brokers' small disks where a run that hung has left them."""
    for data in run.glob("cluster/broker-*/data"):
        if data.is_mount():
            subprocess.run(["umount", "-l", str(data)], capture_output=True, check=False)
