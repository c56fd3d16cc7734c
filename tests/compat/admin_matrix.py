"""Real admin tools and clients, Kafka's own and others, play the rows on a cluster of ours."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.admin_actors import Actor, Client, JavaActor, Tools
from tests.compat.admin_rows import OPTIONS, ROWS, Row, Stage
from tests.compat.go_actors import GoActor, Kafkactl, KafkaGo, Kcl, Topicctl
from tests.compat.go_programs import version_of
from tests.compat.java_tools import JavaTools

VERSIONS: Final = ("2.8.2", "3.9.1", "4.1.0")
OF_KAFKA: Final[tuple[type[JavaActor], ...]] = (Tools, Client)
IN_GO: Final[Mapping[str, type[GoActor]]] = {kind.kind: kind for kind in (KafkaGo, Kcl, Kafkactl, Topicctl)}
COLUMNS: Final = (
    *(f"{kind.kind} {version}" for kind in OF_KAFKA for version in VERSIONS),
    *(f"{kind} {version_of(kind)}" for kind in IN_GO),
)
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
    with JavaTools(version, directory) as java:
        actors = [kind(java, cluster.bootstrap, directory) for kind in OF_KAFKA]
        return {_column(actor): _cells(actor, cluster, directory, progress, rows) for actor in actors}


def played_in_go(
    kind: str, cluster: EmbeddedCluster, directory: Path, progress: Callable[[str], None], rows: Sequence[Row] = ROWS
) -> dict[str, Cells]:
    """Play the rows with one of IN_GO. Raises MissingError where it cannot be built here."""
    directory.mkdir(parents=True, exist_ok=True)
    actor = IN_GO[kind](cluster.bootstrap, directory)
    return {_column(actor): _cells(actor, cluster, directory, progress, rows)}


def _column(actor: Actor) -> str:
    return f"{actor.kind} {actor.version}"


def _cells(
    actor: Actor, cluster: EmbeddedCluster, directory: Path, progress: Callable[[str], None], rows: Sequence[Row]
) -> Cells:
    cells: Cells = {}
    with ZooKeeper(cluster.zookeeper) as zk:
        stage = Stage(cluster, zk, actor, f"{actor.kind}-{actor.version.replace('.', '')}-", directory)
        for row in rows:
            cells[row.title] = NOT_THERE
            if type(actor) in row.of:
                progress(f"{_column(actor)}: {row.title}")
                cells[row.title] = _cell(row, stage)
    return cells


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
