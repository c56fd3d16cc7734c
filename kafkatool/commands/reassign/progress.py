"""How ``kt reassign`` shows a reassignment under way: partitions, replicas in sync, bytes copied, rate, ETA (RSN-33X)."""

from types import TracebackType
from typing import Self

from kafkatool.commands.reassign.flags import Options
from kafkatool.commands.shared.byte_sizes import byte_size, share_of_bytes
from kafkatool.commands.shared.progress_line import ProgressLine, duration
from kafkatool.core.operations.reassignment.copy_progress import Copied, CopyWatch, to_copy
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper


class ProgressView:
    """Made before the plan is started, so that it knows what there is to copy; shown while the block runs."""

    def __init__(self, o: Options, zk: ZooKeeper, moves: Moves, label: str = "") -> None:
        self._o = o
        self._label = label
        self._watch = CopyWatch(to_copy(zk, moves))

    def __enter__(self) -> Self:
        self._line = ProgressLine(self._o.out.note)
        self._watch.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._line.end()
        self._watch.__exit__(kind, error, tb)

    def show(self, p: Progress) -> None:
        copied = self._watch.copied(p.left)
        if copied is not None:
            share = min(1.0, copied.copied_bytes / copied.total_bytes)
        else:
            share = p.finished / p.total if p.total else 1.0
        self._line.show(self._label + progress_text(p, copied), share)


def progress_text(p: Progress, copied: Copied | None) -> str:
    """One line, at most about 80 wide, what matters most first. ETA by bytes where brokers tell them, else partitions."""
    parts = [f"batch {p.batch}/{p.batches}"] if p.batches > 1 else []
    parts.append(f"{p.finished}/{p.total} partitions, {p.in_sync}/{p.wanted} in sync")
    remaining_s = p.remaining_s
    if copied is not None:
        parts.append(share_of_bytes(copied.copied_bytes, copied.total_bytes))
        if copied.bytes_per_second is not None:
            parts.append(f"{byte_size(copied.bytes_per_second)}/s")
        remaining_s = copied.remaining_s if p.left else 0.0
    return ", ".join([*parts, f"ETA {duration(remaining_s)}"])
