"""Real admin tools and AdminClients play the rows on a cluster of ours."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.admin_actors import Actor, Client, Tools
from tests.compat.admin_rows import OPTIONS, ROWS, Row, Stage
from tests.compat.java_tools import JavaTools

VERSIONS: Final = ("2.8.2", "3.9.1", "4.1.0")
ACTORS: Final[tuple[type[Actor], ...]] = (Tools, Client)
WORKS: Final = "works"
NOT_THERE: Final = "-"

Cells = dict[str, str]
"""Row -> ``works``, ``-`` where that program has no such thing, or what went wrong."""


@contextmanager
def our_cluster(directory: Path) -> Iterator[EmbeddedCluster]:
    """Three brokers of ours."""
    with EmbeddedCluster(3, directory=directory, options=OPTIONS) as cluster:
        yield cluster


def played(
    version: str, cluster: EmbeddedCluster, directory: Path, progress: Callable[[str], None], rows: Sequence[Row] = ROWS
) -> dict[str, Cells]:
    """Play the rows with that version's tools and AdminClient; both in one Java."""
    directory.mkdir(parents=True, exist_ok=True)
    found: dict[str, Cells] = {}
    with JavaTools(version, directory) as java, ZooKeeper(cluster.zookeeper) as zk:
        for kind in ACTORS:
            actor = kind(java, cluster.bootstrap, directory)
            stage = Stage(cluster, zk, actor, f"{actor.kind}-{version.replace('.', '')}-", directory)
            cells = found[f"{actor.kind} {version}"] = {}
            for row in rows:
                progress(f"{actor.kind} of {version}: {row.title}")
                cells[row.title] = _cell(row, stage) if kind in row.of else NOT_THERE
    return found


def _cell(row: Row, stage: Stage) -> str:
    try:
        row.play(stage)
    except (AssertionError, KafkatoolError, subprocess.TimeoutExpired, LookupError, ValueError) as e:
        return f"{type(e).__name__}: {e}"
    return WORKS


def differences(columns: dict[str, Cells]) -> list[str]:
    """Return a line for each cell that does not work."""
    return [
        f"{column}: {row}: {cell}"
        for column, cells in columns.items()
        for row, cell in cells.items()
        if cell not in (WORKS, NOT_THERE)
    ]
