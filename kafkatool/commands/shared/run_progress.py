"""The progress of a plan that is carried out, as one line (RSN-33X)."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from kafkatool.commands.shared.byte_sizes import byte_size, share_of_bytes
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.progress_line import ProgressLine, duration
from kafkatool.core.model.values import first_of, in_number, join_ids
from kafkatool.core.operations.reassignment.copy_progress import Copied, CopyWatch
from kafkatool.core.operations.reassignment.events import Following, Gone, RatesLeft, Released
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.hindrances import Hindrances
from kafkatool.core.operations.reassignment.throttles import RATES

STILL_S: Final = (
    10.0  # of no byte moved, from which on that is said instead of an ETA: a throttle lets them go in bursts
)
SHOWN: Final = 3  # of each kind of hindrance in the line


class RunProgressLine:
    """The line of what is followed now, one after another; ``note`` writes where there is no terminal."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._label: str
        self._line: ProgressLine
        self._watch: CopyWatch
        self._end = ExitStack()

    def begin(self, following: Following) -> None:
        """Begin the line, and ask brokers how much is copied."""
        self._label = f"{following.what}: " if following.what else ""
        self._watch = CopyWatch(following.copying, access=broker_access())
        self._end.push(self._watch)  # before it has begun: an interruption meanwhile ends it too
        self._watch.__enter__()
        self._line = ProgressLine(self._note)
        self._end.callback(self._line.end)

    def show(self, p: Progress) -> None:
        """Show how far it is, in the line that has begun."""
        copied = self._watch.copied(p.left)
        self._line.show(self._label + progress_text(p, copied), share_done(p, copied))

    def end(self) -> None:
        """End the line, if there is one."""
        self._end.close()


def progress_text(p: Progress, copied: Copied | None) -> str:
    """Return one line of about 80 columns, what matters most first; ETA by bytes where brokers tell them."""
    parts = [f"batch {p.batch}/{p.batches}"] if p.batches > 1 else []
    parts.append(f"{p.finished}/{p.total} partitions" + (f", {p.in_sync}/{p.wanted} in sync" if p.wanted else ""))
    parts += hindrance_texts(p.hindrances)
    remaining_s = p.remaining_s
    if copied is not None:
        parts.append(share_of_bytes(copied.copied_bytes, copied.total_bytes))
        if copied.bytes_per_second is not None:
            parts.append(f"{byte_size(copied.bytes_per_second)}/s")
        remaining_s = copied.remaining_s if p.left else 0.0
        if p.left and copied.still_s >= STILL_S:
            return ", ".join([*parts, f"no bytes moved for {copied.still_s:.0f} s"])
        if p.left and any(p.hindrances):
            remaining_s = None
        elif remaining_s is None and copied.written_per_second:
            return ", ".join([*parts, f"ETA unknown: {byte_size(copied.written_per_second)}/s are written meanwhile"])
    return ", ".join([*parts, f"ETA {duration(remaining_s)}"])


def hindrance_texts(found: Hindrances) -> list[str]:
    """Name what stands in the way, most certain first."""
    texts = [f"waiting for broker {join_ids(found.awaited)}, which is down"] if found.awaited else []
    if found.others:
        texts.append(f"waiting for what others move: {first_of(found.others, SHOWN)}")
    if found.leaderless:
        texts.append(f"without leader: {first_of(found.leaderless, SHOWN)}")
    texts += [f"the throttle of broker {broker} is {rate} B/s" for broker, rate in found.throttled[:SHOWN]]
    return texts


def share_done(p: Progress, copied: Copied | None) -> float:
    """Return the share that is done, 0 to 1: of the bytes where brokers tell them."""
    if copied is not None:
        return min(1.0, copied.copied_bytes / copied.total_bytes)
    return p.finished / p.total if p.total else 1.0


def awaited_line(brokers: Sequence[int]) -> str:
    """Say which brokers keep moves from ending."""
    return f"what is in progress waits for brokers that are not registered: {join_ids(brokers)}; start them"


def rates_left_line(event: RatesLeft) -> str:
    """Name the rates that others have set while a run was under way, and that stand."""
    brokers = f"broker{'s' * (len(event.brokers) > 1)} {join_ids(event.brokers)}"
    return f"meanwhile somebody else has set {' and '.join(RATES)} of {brokers}, which stand"


def gone_line(event: Gone, names: str) -> str:
    """Say what was left out of a plan, by its ``names``."""
    count = len(event.partitions)
    one, many = "partition does not exist any more, and is", "partitions do not exist any more, and are"
    return f"{in_number(count, one, many)} left out: {names}"


def released_line(event: Released) -> str:
    """Say what was taken out of the znode."""
    what = in_number(event.partitions, "partition was", "partitions were")
    return f"{what} taken out of /admin/reassign_partitions: it asked for what the controller does not carry out"
