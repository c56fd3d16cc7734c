"""kt and Kafka's own tools do the same steps on our cluster and on real Kafka, and what they leave behind is compared.

What is expected is what a Kafka version's tools leave behind on that version's brokers. Against it stand kt on those
brokers, kt on ours, and that version's tools on ours.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.real_kafka import RealKafka
from tests.compat.tool_rows import PHASES
from tests.compat.tool_stage import Facts, KafkaTools, Kt, Stage
from tests.steady import LASTING

VERSIONS: Final = ("0.10.2.2", "1.1.1", "2.8.2")
SAME: Final = "same"
OPTIONS: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    **LASTING,  # leaders and ISRs are compared: no broker may fall out because the machine is busy
}


class NotPlayed(str):
    """Why that cell is not played."""


class NoCommand(NotPlayed):
    """kt lacks it."""


Played = dict[str, Facts | str]
"""Row -> the facts, or what went wrong."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Columns:
    """Row -> ``same``, or what differs from that version's tools on that version's brokers."""

    kt_on_theirs: Mapping[str, str]
    kt_on_ours: Mapping[str, str]
    theirs_on_ours: Mapping[str, str]

    def differences(self) -> list[str]:
        """Return a line for each cell that is not ``same``."""
        columns = {
            "kt, on theirs": self.kt_on_theirs,
            "kt, on ours": self.kt_on_ours,
            "theirs, on ours": self.theirs_on_ours,
        }
        return [
            f"{name}: {row}: {cell}"
            for name, c in columns.items()
            for row, cell in c.items()
            if cell != SAME and not isinstance(cell, NotPlayed)
        ]


@contextmanager
def our_cluster(directory: Path) -> Iterator[EmbeddedCluster]:
    """Three brokers of ours."""
    with EmbeddedCluster(3, directory=directory, options=OPTIONS) as cluster:
        yield cluster


def compare(version: str, ours: EmbeddedCluster, directory: Path, progress: Progress, *, short: bool) -> Columns:
    """Play all rows (``short``: the ones of the tests) with kt and that version's tools on both clusters."""
    tools = KafkaTools(version, directory / "tools")
    slug = version.replace(".", "")

    def both(connect: str, bootstrap: str, where: str) -> list[Played]:
        found = []
        with ZooKeeper(connect) as zk:
            for actor, prefix in ((Kt(), f"kt{slug}-"), (tools, f"kafka{slug}-")):
                own = directory / f"{prefix}{where}"
                own.mkdir()
                stage = Stage(connect, bootstrap, actor, tools, own, prefix, zk)
                say = lambda line, a=actor: progress(f"{a.name} on {where}: {line}")  # noqa: E731
                found.append(play(stage, say, short=short))
        return found

    with RealKafka(version, directory / "kafka", options=OPTIONS) as kafka, ThreadPoolExecutor(2) as threads:
        real = threads.submit(both, kafka.connect, kafka.bootstrap, version)
        here = threads.submit(both, ours.zookeeper, ours.bootstrap, "ours")
        (kt_there, expected), (kt_here, tools_here) = real.result(), here.result()
    return Columns(
        *({row: difference(expected[row], f[row]) for row in expected} for f in (kt_there, kt_here, tools_here))
    )


def play(stage: Stage, progress: Progress, *, short: bool) -> Played:
    """Play all rows in their order. One that breaks leaves its reason; the others are played all the same."""
    played: Played = {}
    for phase in PHASES:
        rows = [row for row in phase if row.short or not short]
        for row in rows:
            progress(row.title)
            if row.kafka_only and isinstance(stage.actor, Kt):
                played[row.title] = NoCommand("kt has no such command")
                continue
            try:
                played[row.title] = row.play(stage)
            except (AssertionError, KafkatoolError, subprocess.TimeoutExpired, LookupError, ValueError) as e:
                played[row.title] = f"broke: {type(e).__name__}: {str(e).partition(chr(10))[0]}"
        shown = stage.shown()
        for row in rows:
            if row.topics and isinstance(facts := played[row.title], dict):
                facts["shown by Kafka's tool"] = {topic: shown.get(topic) for topic in row.topics}
    return played


def difference(expected: Facts | str, found: Facts | str) -> str:
    """``same``, or the facts that are not, with both values."""
    if isinstance(found, NotPlayed):
        return found
    if isinstance(expected, str) or isinstance(found, str):
        return f"Kafka: {expected}; here: {found}"
    unlike = [key for key in expected if expected[key] != found.get(key)]
    return "; ".join(f"{k}: Kafka {expected[k]}, here {found.get(k)}" for k in unlike) or SAME


def columns_of(versions: Sequence[str], directory: Path, progress: Progress, *, short: bool) -> dict[str, Columns]:
    """Start all those versions beside one cluster of ours."""
    with our_cluster(directory / "ours") as ours:
        found = {}
        for version in versions:
            (own := directory / version).mkdir()
            found[version] = compare(version, ours, own, progress, short=short)
        return found
