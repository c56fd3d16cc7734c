"""The line that shows a reassignment under way: partitions, replicas in sync, bytes copied, rate, ETA (RSN-33X)."""

from typing import Self

from kafkatool.commands.shared.byte_sizes import byte_size, share_of_bytes
from kafkatool.commands.shared.output import Output
from kafkatool.commands.shared.progress_line import ProgressLine, duration
from kafkatool.core.operations.reassignment.copy_progress import Copied, CopyWatch, ToCopy
from kafkatool.core.operations.reassignment.following import Progress


class ProgressView:
    """A line of progress while the block runs. ``copying`` was read before the plan was started; ``what`` that is."""

    def __init__(self, out: Output, copying: ToCopy, what: str) -> None:
        self._label = f"{what}: " if what else ""
        self._line = ProgressLine(out.note)
        self._watch = CopyWatch(copying)

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.end()
        self._watch.__exit__()

    def show(self, p: Progress) -> None:
        """Show the newest progress."""
        copied = self._watch.copied(p.left)
        if copied is not None:
            share = min(1.0, copied.copied_bytes / copied.total_bytes)
        else:
            share = p.finished / p.total if p.total else 1.0
        self._line.show(self._label + progress_text(p, copied), share)


def progress_text(p: Progress, copied: Copied | None) -> str:
    """Return one line of about 80 columns, what matters most first; ETA by bytes where brokers tell them."""
    parts = [f"batch {p.batch}/{p.batches}"] if p.batches > 1 else []
    parts.append(f"{p.finished}/{p.total} partitions, {p.in_sync}/{p.wanted} in sync")
    remaining_s = p.remaining_s
    if copied is not None:
        parts.append(share_of_bytes(copied.copied_bytes, copied.total_bytes))
        if copied.bytes_per_second is not None:
            parts.append(f"{byte_size(copied.bytes_per_second)}/s")
        remaining_s = copied.remaining_s if p.left else 0.0
    return ", ".join([*parts, f"ETA {duration(remaining_s)}"])
