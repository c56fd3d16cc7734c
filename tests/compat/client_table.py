"""``scripts/client-matrix``: run the client matrix and show it as one table."""

import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.compat import client_matrix, matrix_arguments
from tests.compat.client_matrix import CELLS, Row
from tests.compat.client_programs import PREPARE
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "clients.md"
INTRODUCTION: Final = """# Clients

What clients do with three brokers of ours, as `scripts/client-matrix --write` last found it. `scripts/test-slow` asserts
every cell. Each client keeps its defaults; the programs are in `tests/compat/clients/`.

- **none to zstd**: it writes with that codec, the batches in the log have it and hold each record once; it reads, by
  value, all that all these clients have written with it.
- **group**: while its own producer goes on, one member has all partitions, a second joins, they share, the second
  leaves, the first has all again; every acknowledged record is read.
- **kill -9**: the leader of one of its partitions, coordinator of some of the groups, is killed and comes back; with
  acks=all (where that is not the default) every acknowledged record is read, by value, and what the member has
  committed when it leaves is the end of each partition.

KafkaJS reads in groups only, so it reads the codecs' topics in a group of its own; its codecs are kafkajs-snappy,
lz4-napi and @mongodb-js/zstd.
"""


def main() -> int:
    clients, write = matrix_arguments.parse("scripts/client-matrix", __doc__, "client", PREPARE, "docs/clients.md")
    console = Console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="client-matrix-") as directory:
        rows = client_matrix.run(clients, Path(directory), lambda line: print(line, file=sys.stderr))
    console.print(_table(rows))
    console.print(f"{time.monotonic() - began:.0f} s")
    for client, row in rows.items():
        for cell in CELLS:
            if row.cells.get(cell, "ok") != "ok":
                print(f"{client}, {cell}: {row.cells[cell]}")
    if write:
        PAGE.write_text(_page(rows))
    return 0 if all(row.missing or set(row.cells.values()) == {"ok"} for row in rows.values()) else 1


def _cells(row: Row) -> list[str]:
    if row.missing:
        return [row.missing] + [""] * len(CELLS)
    return [row.version, *("ok" if row.cells.get(c) == "ok" else "FAILED" for c in CELLS)]


def _table(rows: dict[str, Row]) -> Table:
    table = Table(title="Clients against three kafkatool brokers", padding=0)
    for column in ("client", "library", *CELLS):
        table.add_column(column)
    for client, row in rows.items():
        table.add_row(client, *(f"[red]{c}[/red]" if c == "FAILED" else c for c in _cells(row)))
    return table


def _page(rows: dict[str, Row]) -> str:
    lines = [["client", "library", *CELLS], ["---"] * (len(CELLS) + 2)]
    lines += [[client, *_cells(row)] for client, row in rows.items()]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{INTRODUCTION}\n{table}\n\nPython {platform.python_version()}, {platform.system()}.\n"


if __name__ == "__main__":
    sys.exit(main())
