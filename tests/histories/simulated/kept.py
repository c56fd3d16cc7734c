"""What is left of a schedule that fails, to be read: it is played again, and everybody says what they did."""

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.broker.replication.world import Clock
from tests.histories.analyser.verdict import Verdict
from tests.histories.kept.versions import versions
from tests.histories.simulated.brokers import Broker
from tests.histories.simulated.simulation import Schedule, run
from tests.histories.timeline import write_page

_SAID: Final = "brokers.log"


def keep(directory: Path, schedule: Schedule) -> Verdict:
    """Leave history, page, schedule, verdict, versions, the brokers' log and their disks in a directory."""
    verdict = run(directory, schedule, partial(_listening, directory / _SAID))
    write_page(directory / "history.jsonl", directory / "timeline.html", verdict)
    (directory / "schedule.txt").write_text("\n".join(told(schedule)) + "\n")
    (directory / "verdict.txt").write_text("\n".join(verdict.lines()) + "\n")
    (directory / "versions.txt").write_text("\n".join(versions()) + "\n")
    return verdict


def told(schedule: Schedule) -> Iterator[str]:
    """Yield a schedule in words."""
    compacted = ", compacted" if schedule.compacted else ""
    which = f" ({', '.join(map(str, schedule.present))} of {schedule.processes})" if schedule.absent else ""
    processes = f"{len(schedule.present)} processes{which}"
    yield f"seed {schedule.seed}: {schedule.operations} operations, {processes}{compacted}"
    yield from map(str, schedule.faults)


@contextmanager
def _listening(file: Path, clock: Clock) -> Iterator[None]:
    """Write what the brokers say into a file, with the time of the run, which is that of the history."""
    brokers, handler = logging.getLogger("kafkatool"), logging.FileHandler(file)
    handler.setFormatter(_Clocked(clock))
    level, disabled = brokers.level, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    brokers.setLevel(logging.INFO)
    brokers.addHandler(handler)
    try:
        yield
    finally:
        brokers.removeHandler(handler)
        handler.close()
        brokers.setLevel(level)
        logging.disable(disabled)


class _Clocked(logging.Formatter):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        who, name = _speaker(), record.name.removeprefix("kafkatool.broker.")
        return f"{self._clock() / 1e3:.3f} s {who} {record.levelname} {name}: {record.getMessage()}"


def _speaker() -> str:
    """Return which broker is at work: there is one thread for all of them."""
    frame = inspect.currentframe()
    while frame is not None:
        if isinstance(one := frame.f_locals.get("self"), Broker):
            return f"broker {one.id}"
        frame = frame.f_back
    return "nobody"
