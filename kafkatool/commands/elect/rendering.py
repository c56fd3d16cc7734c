"""Texts, rows and columns of ``kt elect``: results in, lines and items out. Nothing here prints or reads flags."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafkatool.commands.elect.columns import COLUMNS, REPORT_COLUMNS
from kafkatool.commands.shared.output import Answer, paint
from kafkatool.commands.shared.progress_line import duration
from kafkatool.core.model.values import TopicPartition, in_number
from kafkatool.core.operations.election import election
from kafkatool.core.operations.election.election import LED_BY_PREFERRED, Outcome, PartitionResult
from kafkatool.core.planner.plan_files import PartitionName
from kafkatool.core.zookeeper.cluster_view import ClusterView


def batch_text(batches: Sequence[Sequence[TopicPartition]], number: int, elapsed_s: float) -> str:
    """Write ``batch 3/40: 50 partitions, 100 of 2000 done, ETA 1:20``; no ETA before a batch has ended."""
    done, total = sum(map(len, batches[: number - 1])), sum(map(len, batches))
    size = in_number(len(batches[number - 1]), "partition", "partitions")
    text = f"batch {number}/{len(batches)}: {size}, {done} of {total} done"
    return f"{text}, ETA {duration(elapsed_s / done * (total - done))}" if done else text


def outcome_lines(items: Sequence[PartitionResult], name_of: PartitionName) -> Iterator[str]:
    """Yield a line per partition for stderr, coloured on a terminal."""
    paints = sys.stderr.isatty()  # asked once: it is a call to the system
    for item in items:
        leaders = f"preferred {item.preferred}, leader {'none' if item.leader is None else item.leader}"
        if item.status is Outcome.UNKNOWN:
            leaders = "there is no such partition"
        text = f"{name_of(item.partition)}: {item.status}, {leaders}"
        yield paint(text, "green" if item.status in LED_BY_PREFERRED else "red", err=True) if paints else text


def outcome_item(item: PartitionResult) -> dict[str, Any]:
    """Return the JSON object and TSV row of one partition."""
    return {**item.partition._asdict(), **{key: getattr(item, key) for key in COLUMNS[2:]}}


def counted(counts: Mapping[str, int]) -> str:
    """Write ``2 elected, 1 failed``, in the order of the names."""
    return ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))


def report_answer(view: ClusterView, threshold: float) -> Answer:
    """Render leaders and imbalance of each broker (ELE-18X); ``threshold`` is in percent."""
    rows = election.report(view)
    items = [
        {
            "broker": row.broker_id,
            "registered": row.registered,
            "leaders": row.leaders,
            "preferred": row.preferred,
            "led_by_others": row.led_by_others,
            "imbalance": round(row.imbalance, 4),
            "over_threshold": row.imbalance * 100 > threshold,
        }
        for row in rows
    ]
    lines = ["\t".join(("Broker", "Leaders", "Preferred", "Imbalance", f"Over {threshold:g}%"))]
    lines += [
        f"{row.broker_id}{'' if row.registered else ' (down)'}\t{row.leaders}\t{row.preferred}\t"
        f"{row.imbalance * 100:.1f}%\t{'yes' if item['over_threshold'] else 'no'}"
        for row, item in zip(rows, items, strict=True)
    ]
    return Answer(lines, items, REPORT_COLUMNS, view.cluster_id)
