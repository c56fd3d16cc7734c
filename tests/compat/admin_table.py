"""``scripts/admin-matrix``: real admin tools and clients on our brokers, as one table."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.compat import admin_matrix, matrix_arguments
from tests.compat.admin_matrix import COLUMNS, IN_GO, NOT_THERE, VERSIONS, WORKS, Cells
from tests.compat.admin_rows import ROWS
from tests.compat.go_programs import executable
from tests.compat.real_kafka import libraries
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "admin-clients.md"
INTRODUCTION: Final = """# Admin tools and clients on our brokers

Written by `scripts/admin-matrix --write`. Kafka's own command-line tools (`kafka-topics`, `kafka-configs`,
`kafka-reassign-partitions`, `kafka-leader-election`, `kafka-consumer-groups`, `kafka-log-dirs`, all with
`--bootstrap-server`) and programs of its Java AdminClient, each of three versions, a program of
[kafka-go](https://github.com/segmentio/kafka-go)'s Client, and the tools [kcl](https://github.com/twmb/kcl) (franz-go),
[kafkactl](https://github.com/deviceinsight/kafkactl) (sarama) and [topicctl](https://github.com/segmentio/topicctl)
(kafka-go) administer one cluster of three of our brokers. What a row did is read again from ZooKeeper and asked for by the
same tool or client; what must be refused, is, in words that it understands. `-`: that program has no such thing, or not by
itself (kafka-go's Client and kcl send an empty list of replicas, or none, where a move is to be cancelled).

kafka-go's Readers, and what it does by a Conn, never ask which versions a broker has, but for those they choose among; all
that they send is served. What a client sends unasked that is not, closes its connection, as in Kafka, and the broker's log
says which request of which client that was, and which versions are served.

What Kafka 2.8 serves clients is served in its versions, so that a client that is told a version of 2.8 or earlier, and
asks for none, is at home, too; delegation tokens and features are not. kafka-python's own integration tests (of August
2026, commit a3b3836f) against one broker of ours by `KAFKA_URI`, told `KAFKA_VERSION=2.8.2`: 48 passed, those of
producers in transactions among them; 5 skipped, as they are for other versions; those of SASL and TLS start brokers of
their own and were left out. Two differ on purpose: `advertised.listeners` is described as read-only, since it cannot be
changed here, and a client that infers a version from what is served infers 3.6. One, `max_in_flight[1]`, failed in one of
three runs, by an exception of the client's own at its own limit.

Kafka's ReplicaVerificationTool of 0.10.2.2, 1.1.1 and 2.8.2 finds replicas on three of our brokers equal, and names a byte
that was flipped in one (`tests/compat/test_old_clients.py`).

"""


def main() -> int:
    """Parse, play, print; exit code 1 when a cell does not work."""
    known = (*VERSIONS, *IN_GO)
    arguments = matrix_arguments.parse("scripts/admin-matrix", __doc__, "column", known, "docs/admin-clients.md")
    java, go = ([one for one in arguments.chosen if one in known] for known in (VERSIONS, IN_GO))
    for version in java:
        libraries(version)
    for program in go:
        executable(program)
    began = time.monotonic()
    found: dict[str, Cells] = {}
    with (
        tempfile.TemporaryDirectory(prefix="admin-matrix-") as directory,
        admin_matrix.our_cluster(Path(directory) / "ours") as ours,
    ):
        for one in arguments.chosen:
            say = lambda line: print(line, file=sys.stderr)  # noqa: E731
            play = admin_matrix.played_in_go if one in IN_GO else admin_matrix.played
            found |= play(one, ours, Path(directory) / one, say)
    print(table(found))
    print(f"{time.monotonic() - began:.0f} s")
    differences = admin_matrix.differences(found)
    print("\n".join(differences))
    if arguments.write:
        PAGE.write_text(f"{INTRODUCTION}{table(found)}")
    return 1 if differences else 0


def table(found: dict[str, Cells]) -> str:
    """Markdown: a row for each step, a column for each tool set and client."""
    columns = sorted(found, key=COLUMNS.index)
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in ROWS:
        cells = [found[column][row.title] for column in columns]
        lines.append([row.title, *(cell if cell in (WORKS, NOT_THERE) else "FAILS" for cell in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
