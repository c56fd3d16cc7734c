"""Which topic a log was made for: noted in a file of its partition directory, where it goes wherever the log goes.

A topic deleted and made again has the same name and the same partitions; its node in ZooKeeper is another one. The file
is this broker's own: Kafka leaves files it does not know where they are (its ``partition.metadata`` is another, for
clusters with topic ids). It is not synced: one that a power cut took or tore counts as none, and is written anew.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kafkatool.core.model.values import TopicPartition

_FILE = "kafkatool-topic-identity"
_TEXT = re.compile(r"0\n([0-9a-f]{16}) ([0-9a-f]{16})\n")  # of a fixed length: a torn one shows


class TopicIdentity(NamedTuple):
    """The transactions that made the node of the cluster's id and that of the topic."""

    cluster: int
    topic: int

    def is_before(self, other: "TopicIdentity") -> bool:
        """Tell whether this is an earlier topic. Nothing is known of nodes that were copied to another ZooKeeper."""
        return self.cluster == other.cluster and self.topic < other.topic


class Judgement(NamedTuple):
    """What the cluster says of the logs found: those that are not its own, and which topics there are by name."""

    strays: set[TopicPartition]
    identities: Mapping[str, TopicIdentity]


def read_identity(directory: Path) -> TopicIdentity | None:
    """Return what is noted of the log in it; None: nothing, or nothing that can be read. Raises OSError."""
    try:
        match = _TEXT.fullmatch((directory / _FILE).read_bytes().decode("latin-1"))
    except FileNotFoundError:
        return None
    return TopicIdentity(int(match[1], 16), int(match[2], 16)) if match else None


def write_identity(directory: Path, identity: TopicIdentity) -> None:
    """Note it. Raises OSError."""
    (directory / _FILE).write_bytes(f"0\n{identity.cluster:016x} {identity.topic:016x}\n".encode())
