"""``scripts/admin-matrix``: real admin tools and AdminClients of Kafka on our brokers, as one table."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.compat import admin_matrix, matrix_arguments
from tests.compat.admin_matrix import ACTORS, NOT_THERE, VERSIONS, WORKS, Cells
from tests.compat.admin_rows import ROWS
from tests.compat.real_kafka import libraries
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "admin-clients.md"
INTRODUCTION: Final = """# Kafka's admin tools and clients on our brokers

Written by `scripts/admin-matrix --write`. Kafka's own command-line tools (`kafka-topics`, `kafka-configs`,
`kafka-reassign-partitions`, `kafka-leader-election`, `kafka-consumer-groups`, `kafka-log-dirs`, all with
`--bootstrap-server`) and programs of its Java AdminClient, each of three versions, administer one cluster of three of our
brokers. What a row did is read again from ZooKeeper and asked for by the same tool or client; what must be refused, is, in
words that it understands. `-`: that program has no such thing, or not by itself.

"""


def main() -> int:
    """Parse, play, print; exit code 1 when a cell does not work."""
    arguments = matrix_arguments.parse("scripts/admin-matrix", __doc__, "version", VERSIONS, "docs/admin-clients.md")
    versions = arguments.chosen
    for version in versions:
        libraries(version)
    began = time.monotonic()
    found: dict[str, Cells] = {}
    with (
        tempfile.TemporaryDirectory(prefix="admin-matrix-") as directory,
        admin_matrix.our_cluster(Path(directory) / "ours") as ours,
    ):
        for version in versions:
            say = lambda line: print(line, file=sys.stderr)  # noqa: E731
            found |= admin_matrix.played(version, ours, Path(directory) / version, say)
    print(table(found))
    print(f"{time.monotonic() - began:.0f} s")
    differences = admin_matrix.differences(found)
    print("\n".join(differences))
    if arguments.write:
        PAGE.write_text(f"{INTRODUCTION}{table(found)}")
    return 1 if differences else 0


def table(found: dict[str, Cells]) -> str:
    """Markdown: a row for each step, a column for each tool set and client."""
    columns = sorted(found, key=lambda name: ([a.kind for a in ACTORS].index(name.split()[0]), name))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in ROWS:
        cells = [found[column][row.title] for column in columns]
        lines.append([row.title, *(cell if cell in (WORKS, NOT_THERE) else "FAILS" for cell in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
