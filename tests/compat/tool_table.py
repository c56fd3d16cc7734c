"""``scripts/tool-matrix``: kt and Kafka's own tools on our brokers and on real Kafka, open and secured, as tables."""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.compat import matrix_arguments, request_matrix, secured_matrix, tool_matrix
from tests.compat.real_kafka import libraries
from tests.compat.request_matrix import CLUSTERS
from tests.compat.tool_matrix import SAME, VERSIONS, Columns, NotPlayed
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "compatibility.md"
INTRODUCTION: Final = """# Compatibility of the tools

Written by `scripts/tool-matrix --write`. Each row is played three times beside each Kafka version: kt on real brokers of
that version, kt on ours, and that version's own tools on ours. What is expected is what that version's tools leave
behind on that version's brokers. Compared are exit codes and refusals, the znodes of topics, overrides and throttles and
what is announced under `/config/changes`, leaders and in-sync replicas, and what that version's `TopicCommand --describe`
shows afterwards. Three brokers each; topics, reassignments and elections through ZooKeeper, as all these tools do.

Where the assignment is random (`create` with numbers, `--generate`), it must be one that Kafka's rule gives for some
start and shift. Kafka's tools have no `--cancel` with ZooKeeper: there the way back is a second plan. `-`: kt has no
such command.
"""
BY_REQUEST: Final = """
## Kafka 3.x and 4.x

Their tools have no `--zookeeper`, their brokers of 3.x still follow its nodes. Each row is played on real clusters of three
brokers, with ZooKeeper and without (KRaft): by that version's own tools with `--bootstrap-server`, by kt the same way, and
where there is a ZooKeeper by `kt --zookeeper`. Compared with what the version's tools leave behind are replicas, leaders and
in-sync replicas as every broker tells them, configs, throttles, what is refused, and descriptions line by line (but the
order of configs, which is none, and ids). `-`: only by request.

"""
SECURED: Final = """
## Secured clusters

The same rows on real clusters of three brokers that nobody unknown may do anything on: ZooKeeper with SASL DIGEST-MD5 and,
from 2.5 on, TLS, and ACLs on its nodes (`zookeeper.set.acl=true`); brokers with SASL_SSL, SSL with certificates, and an
authorizer. Tools of 1.1.1 and 2.8.2 log in at ZooKeeper by SASL; kt by SASL, and by TLS and SASL. Compared are the facts of
the first table and who may do what with each node of the topics (`getAcl`). Kafka's ReplicaVerificationTool cannot log in
at brokers: what kt says stands against what is known of the replicas, that they are equal.

"""
SECURED_BY_REQUEST: Final = """
Tools of 3.9.1 log in at brokers by SASL_SSL (SCRAM-SHA-512); compared are the facts of the second table.

"""
NOTES: Final = """
`tests/compat/test_bootstrap_server.py` runs `kt topics`, `elect` and `reassign` with `--bootstrap-server` on 2.8.2, too, and
`topics` on 1.1.1, whose brokers have no requests for the others.

## Tools and clients with tests of their own

ReplicaVerificationTool asks no broker which versions it serves: that of 2.8.2 sends Fetch 12, those of 0.10.2.2 and 1.1.1
ListOffsets 0 and Fetch 3, from before Kafka 0.11. Our brokers serve both; that it finds equal replicas equal and a flipped
byte is shown in `tests/compat/test_old_clients.py`, with the consoles of 0.10.2.2, the Scala ones over ZooKeeper too.
Tools that talk to brokers with newer requests (ConsumerGroupCommand, DeleteRecordsCommand, LogDirsCommand, GetOffsetShell,
the consoles and load tools, of 2.8.2) have tests of their own in `tests/compat`.
"""


def main() -> int:
    """Parse, play, print; exit code 1 when a cell differs."""
    known = (*VERSIONS, *CLUSTERS, *secured_matrix.CLUSTERS)
    arguments = matrix_arguments.parse("scripts/tool-matrix", __doc__, "version", known, "docs/compatibility.md")
    versions = [name for name in arguments.chosen if name in VERSIONS]
    clusters = [name for name in arguments.chosen if name in CLUSTERS]
    behind_login = [name for name in arguments.chosen if name in secured_matrix.CLUSTERS]
    for name in arguments.chosen:
        libraries(name.partition("-")[0])
    began = time.monotonic()
    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    found: dict[str, Columns] = {}
    by_request: request_matrix.Columns = {}
    secured: request_matrix.Columns = {}
    secured_by_request: request_matrix.Columns = {}
    with tempfile.TemporaryDirectory(prefix="tool-matrix-") as directory:
        if versions:
            found = tool_matrix.columns_of(versions, Path(directory), say, short=False)
        for cluster in clusters:
            by_request |= request_matrix.compare(cluster, Path(directory) / cluster, say, short=False)
        for cluster in behind_login:
            columns = secured_by_request if cluster == secured_matrix.BY_REQUEST else secured
            columns |= secured_matrix.compare(cluster, Path(directory) / cluster, say, short=False)
    others = (by_request, secured, secured_by_request)
    tables = [table(found) if found else "", *(request_matrix.table(columns) if columns else "" for columns in others)]
    print("\n".join(filter(None, tables)))
    print(f"{time.monotonic() - began:.0f} s")
    differences = [f"{version}: {line}" for version, columns in found.items() for line in columns.differences()]
    differences += [line for columns in others for line in request_matrix.differences(columns)]
    print("\n".join(differences))
    if arguments.write:
        parts = (f"{INTRODUCTION}\n", BY_REQUEST, SECURED, SECURED_BY_REQUEST)
        PAGE.write_text("".join(before + made for before, made in zip(parts, tables, strict=True)) + NOTES)
    return 1 if differences else 0


def table(found: Mapping[str, Columns]) -> str:
    """Markdown: a row for each step, a column for kt on each kind of broker and for each version's tools on ours."""
    head = ["", "kt on ours", *(f"kt on {v}" for v in found), *(f"tools of {v} on ours" for v in found)]
    lines = [head, ["---"] * len(head)]
    for row in next(iter(found.values())).kt_on_ours:
        lines.append(
            [
                row,
                _worst([columns.kt_on_ours[row] for columns in found.values()]),
                *(_cell(columns.kt_on_theirs[row]) for columns in found.values()),
                *(_cell(columns.theirs_on_ours[row]) for columns in found.values()),
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _worst(cells: Sequence[str]) -> str:
    return next((_cell(cell) for cell in cells if cell != SAME), SAME)


def _cell(cell: str) -> str:
    if isinstance(cell, NotPlayed):
        return "-"
    return cell if cell == SAME else "DIFFERS"


if __name__ == "__main__":
    sys.exit(main())
