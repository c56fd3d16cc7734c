"""``scripts/client-matrix``: run the client matrix and that of transactions, or the secured one; show each as a table."""

import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.compat import client_matrix, matrix_arguments, secured_client_matrix, transaction_matrix
from tests.compat.client_matrix import CELLS, Row
from tests.compat.client_programs import PREPARE
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "clients.md"
INTRODUCTION: Final = """# Clients

What clients do with three brokers of ours, as `scripts/client-matrix --write`, and then `--secure`, last found it.
`scripts/test-slow` asserts every cell, with `--all` those of the secured one. Each client keeps its defaults, but that five
of them wait or try longer than a process may stand still on a busy machine; the programs are in `tests/compat/clients/`,
whose README says which.

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

TRANSACTIONS: Final = """
## Transactions

On one broker and on three, with the clients' defaults; what a client wrote is judged by the same client, reading by
value, in the order of each partition.

- **commit, abort**: ten transactions over two topics and all their partitions, committed and aborted in turn; at the end
  a reader with `read_committed` sees exactly what was committed, one with `read_uncommitted` all that was sent.
- **fenced**: a second producer of the same transactional id comes in the middle of a transaction: the first is told and
  can't commit, its records are aborted, the second goes on.
- **timed out**: a transaction is left open past its time: it is aborted, its producer told, a new one goes on.
- **1,000**: so many transactions in a row.
- **copy**: a member of a group copies a topic, its offsets within the transactions; the first one is aborted by itself.
  Every committed record is copied once, in order.

"""


SECURED_TITLE: Final = "## Secured\n"
SECURED: Final = """
Three brokers of `EmbeddedCluster(security="sasl_plaintext")`, then of `"sasl_ssl"`, by each way to log in. A cell is: its
producer with acks=all and its group member go on while the broker that leads one of its partitions is killed and comes
back; every acknowledged record is read, by value, and what the member has committed when it leaves is the end of each
partition. Who logs in by name, and who shows no certificate, may use the topics and the groups of that column alone; who
shows one is the super user `CN=admin`.

"""

Rows = Mapping[str, Row]


def main() -> int:
    flags = {"secure": "secured brokers, by each way to log in"}
    arguments = matrix_arguments.parse(
        "scripts/client-matrix", __doc__, "client", PREPARE, "its part of docs/clients.md", flags
    )
    console = Console()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="client-matrix-") as directory:
        play = _play_secured if "secure" in arguments.flags else _play
        tables = play(arguments.chosen, Path(directory))
    for title, rows, cells in tables:
        console.print(_table(title, rows, cells))
    console.print(f"{time.monotonic() - began:.0f} s")
    every = [(client, row) for _, rows, _ in tables for client, row in rows.items()]
    for client, row in every:
        for cell, outcome in row.cells.items():
            if outcome != "ok":
                print(f"{client}, {cell}: {outcome}")
    if arguments.write:
        written = [_lines(rows, cells) for _, rows, cells in tables]
        PAGE.write_text(_page(PAGE.read_text(), written))
    return 0 if all(row.missing or set(row.cells.values()) == {"ok"} for _, row in every) else 1


def _play(clients: Sequence[str], directory: Path) -> list[tuple[str, Rows, Sequence[str]]]:
    rows = client_matrix.run(clients, directory, _tell)
    transactional = [client for client in clients if client in transaction_matrix.CLIENTS]
    transactions = transaction_matrix.run_both(transactional, directory, _tell)
    return [
        ("Clients against three kafkatool brokers", rows, CELLS),
        ("Their transactions on one kafkatool broker and on three", transactions, transaction_matrix.CELLS),
    ]


def _play_secured(clients: Sequence[str], directory: Path) -> list[tuple[str, Rows, Sequence[str]]]:
    rows = secured_client_matrix.run(clients, directory, _tell)
    return [("Clients against three secured kafkatool brokers", rows, secured_client_matrix.CELLS)]


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _cells(row: Row, cells: Sequence[str]) -> list[str]:
    if row.missing:
        return [row.missing] + [""] * len(cells)
    return [row.version, *("ok" if row.cells.get(c) == "ok" else "FAILED" for c in cells)]


def _table(title: str, rows: Mapping[str, Row], cells: Sequence[str]) -> Table:
    table = Table(title=title, padding=0)
    for column in ("client", "library", *cells):
        table.add_column(column)
    for client, row in rows.items():
        table.add_row(client, *(f"[red]{c}[/red]" if c == "FAILED" else c for c in _cells(row, cells)))
    return table


def _page(before: str, tables: Sequence[str]) -> str:
    """Write the page with its first two tables, or its last one, made anew."""
    opened, _, closed = before.partition(SECURED_TITLE)
    made = f"Python {platform.python_version()}, {platform.system()}."
    if len(tables) == 1:
        closed = f"{SECURED}{tables[0]}\n\n{made}\n"
    else:
        opened = f"{INTRODUCTION}\n{tables[0]}\n{TRANSACTIONS}{tables[1]}\n\n{made}\n\n"
    return f"{opened}{SECURED_TITLE}{closed}"


def _lines(rows: Mapping[str, Row], cells: Sequence[str]) -> str:
    lines = [["client", "library", *cells], ["---"] * (len(cells) + 2)]
    lines += [[client, *_cells(row, cells)] for client, row in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
