"""kt and the tools of Kafka 3.x and 4.x do the same steps on real clusters, and what they leave behind is compared.

What is expected is what that version's tools leave behind. Against it stand kt by request and, where there is a
ZooKeeper, kt through it: tools of 3.x go that way no more, their brokers do.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.compat.java_tools import JavaTools
from tests.compat.real_kafka import KraftKafka, RealKafka
from tests.compat.request_actors import Actor, Kt, KtByZooKeeper, Tools
from tests.compat.request_rows import ROWS, Facts, Row, Stage
from tests.steady import LASTING, LASTING_KRAFT, ONE_BATCH_A_FETCH

CLUSTERS: Final = {
    "3.6.1": RealKafka,
    "3.9.1": RealKafka,
    "3.9.1-kraft": KraftKafka,
    "4.1.0-kraft": KraftKafka,
}
"""A version, and how its cluster is run."""
SAME: Final = "same"
NOT_THERE: Final = "-"
OPTIONS: Final = {"auto.leader.rebalance.enable": "false", "delete.topic.enable": "true", **ONE_BATCH_A_FETCH}

Played = dict[str, Facts | str]
"""Row -> the facts, or what went wrong."""
Columns = dict[str, dict[str, str]]
"""Column -> row -> ``same``, ``-``, or what differs from the version's tools."""
Progress = Callable[[str], None]


def compare(cluster: str, directory: Path, progress: Progress, *, short: bool) -> Columns:
    """Play all rows (``short``: those of the tests) on one real cluster, by each actor in turn."""
    kind, version = CLUSTERS[cluster], cluster.partition("-")[0]
    directory.mkdir(parents=True, exist_ok=True)
    lasting = LASTING if kind is RealKafka else LASTING_KRAFT
    rows = [row for row in ROWS if row.short or not short]
    with (
        kind(version, directory / "kafka", options={**lasting, **OPTIONS}) as kafka,
        JavaTools(version, directory / "tools") as java,
    ):
        actors: dict[str, Actor] = {"tools": Tools(java, kafka.bootstrap), "kt": Kt(kafka.bootstrap)}
        if kind is RealKafka:
            actors["zk"] = KtByZooKeeper(kafka.connect)
        played: dict[str, Played] = {}
        for prefix, actor in actors.items():
            (own := directory / f"plans-{prefix}").mkdir()
            played[prefix] = play(Stage(kafka, actor, own, f"{prefix}-"), rows, progress)
    expected = played.pop("tools")
    names = {"kt": f"kt on {cluster}", "zk": f"kt by ZooKeeper on {cluster}"}
    return {names[p]: {row: difference(expected[row], found[row]) for row in expected} for p, found in played.items()}


def play(stage: Stage, rows: Sequence[Row], progress: Progress) -> Played:
    """Play the rows in their order. One that breaks leaves its reason; the others are played all the same."""
    played: Played = {}
    for row in rows:
        progress(f"{stage.actor.name}: {row.title}")
        if row.by_request and not stage.actor.by_request:
            played[row.title] = NOT_THERE
            continue
        try:
            played[row.title] = row.play(stage)
        except (AssertionError, subprocess.TimeoutExpired, LookupError, ValueError, StopIteration) as e:
            played[row.title] = f"broke: {type(e).__name__}: {e}"
    return played


def difference(expected: Facts | str, found: Facts | str) -> str:
    """``same``, or the facts that are not, with both values. Only what the found side was asked for counts."""
    if found == NOT_THERE:
        return NOT_THERE
    if isinstance(expected, str) or isinstance(found, str):
        return f"Kafka: {expected}; kt: {found}"
    unlike = [key for key in found if expected[key] != found[key]]
    return "; ".join(f"{k}: Kafka {expected[k]}, kt {found[k]}" for k in unlike) or SAME


def differences(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each cell that is not ``same``."""
    return [
        f"{column}: {row}: {cell}"
        for column, cells in columns.items()
        for row, cell in cells.items()
        if cell not in (SAME, NOT_THERE)
    ]


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: a row for each step, a column for each cluster and way."""
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in next(iter(columns.values())):
        cells = (found[row] for found in columns.values())
        lines.append([row, *(cell if cell in (SAME, NOT_THERE) else "DIFFERS" for cell in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
