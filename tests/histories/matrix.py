"""The matrix: one cell a seed, who can play it, and what brokers and topics of it are told."""

import random
from collections.abc import Mapping
from typing import Final

from tests.histories.clients.client import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, Cell

CLIENTS: Final = (LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON)
ON_PURPOSE: Final = 0.1  # of seeds may lose what was acknowledged: an analyser that finds nothing there is blind
_SEGMENT_BYTES: Final = "12000"  # a key's 256 values fill a few


def cell_of(seed: int) -> Cell:
    """Draw a cell of the matrix."""
    chance = random.Random(seed)
    cell = Cell(
        chance.choice(["assign", "subscribe"]),
        chance.choice(["plain", "idempotent", "transactional"]),
        "read_uncommitted" if chance.random() < 1 / 8 else "read_committed",
        cleanup=chance.choice(["delete", "compact"]),
    )
    if chance.random() < ON_PURPOSE:
        return unsafe(cell)
    return cell._replace(client=chance.choice(clients_of(cell)))


def clients_of(cell: Cell) -> list[str]:
    """Return whose recorders play this cell, whatever its client."""
    return [client for client in CLIENTS if fitted(cell, client) == cell._replace(client=client)]


def fitted(cell: Cell, client: str) -> Cell:
    """Return the cell with that client, and with what its recorder does not do replaced by what it does."""
    cell = cell._replace(client=client)
    if client == AIOKAFKA and cell.transactional:
        return cell._replace(via="assign")
    if client == KAFKA_PYTHON:
        guarantee = "idempotent" if cell.transactional else cell.guarantee
        return cell._replace(via="assign", guarantee=guarantee, cleanup="delete")
    return cell


def unsafe(cell: Cell) -> Cell:
    """Return the cell with all that may lose what was acknowledged; acks=1 leaves no guarantee to ask for.

    No group and no compaction either: what these keep rests on records that such brokers may lose as well, so each of
    their kinds would have to be forgiven.
    """
    return cell._replace(via="assign", guarantee="plain", acks="1", cleanup="delete", min_isr=1, unclean=True)


def safe(cell: Cell) -> Cell:
    """Return the cell with nothing of that."""
    return cell._replace(acks="all", min_isr=2, unclean=False)


def broker_options(cell: Cell) -> Mapping[str, str]:
    """Return what the brokers of a run are told, its cell's part included."""
    return {
        "min.insync.replicas": str(cell.min_isr),
        "unclean.leader.election.enable": str(cell.unclean).lower(),
        **({"log.cleaner.backoff.ms": "1000"} if cell.compacted else {}),
    }


def topic_configs(cell: Cell) -> Mapping[str, str]:
    """Return the configuration of the topics that keys are partitions of."""
    configs = {"segment.bytes": _SEGMENT_BYTES}
    if cell.compacted:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    return configs
