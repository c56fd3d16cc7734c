"""Rows of the table, and rounds that take turns."""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.clusters import KAFKA_VERSION

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: medians of what was measured, in the ``unit`` printed; whether more or less of it is better."""

    title: str
    unit: str
    ours: float
    kafka: float
    more_is_better: bool = False

    def __str__(self) -> str:
        better = "more" if self.more_is_better else "less"
        ratio = self.ours / self.kafka
        return (
            f"| {self.title} ({self.unit}; {better} is better) | {_text(self.ours)} | {_text(self.kafka)} "
            f"| {ratio:.2f} |"
        )


def table(figures: Sequence[Figure]) -> str:
    """Markdown. The ratio is ours divided by Kafka's, whichever direction is better."""
    head = f"| | kafkatool | Kafka {KAFKA_VERSION} | ratio |\n|---|---:|---:|---:|\n"
    return head + "".join(f"{figure}\n" for figure in figures)


def alternate(
    rounds: int, ours: _T, kafka: _T, measure: Callable[[_T, int], Sequence[float]]
) -> list[tuple[float, float]]:
    """Medians of each value that ``measure(ours or kafka, round)`` returns: (ours, Kafka's).

    The two take turns, so that a drift of the machine's speed meets both.
    """
    measured: dict[str, list[Sequence[float]]] = {"kafkatool": [], "Kafka": []}
    for number in range(rounds):
        for (name, values), subject in zip(measured.items(), (ours, kafka), strict=True):
            values.append(measure(subject, number))
            shown = ", ".join(map(_text, values[-1]))
            print(f"  round {number + 1}, {name}: {shown}", file=sys.stderr, flush=True)
    medians = [[statistics.median(column) for column in zip(*values, strict=True)] for values in measured.values()]
    return list(zip(*medians, strict=True))


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
