"""The JSON that files and znodes share: a plan, and a list of partitions. Who asks brokers writes it without the znodes."""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from kafkatool.core.model.values import TopicPartition


def encode_plan(moves: Mapping[TopicPartition, Sequence[int]], **further: str) -> bytes:
    """Write the replicas wanted of each partition, compactly (RSN-5, Z-21), and further keys: readers pass over them."""
    entries = [{"topic": t, "partition": p, "replicas": r} for (t, p), r in moves.items()]
    return orjson.dumps({"version": 1, "partitions": entries, **further})


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Write the names of partitions, compactly (ELE-2, Z-22)."""
    return orjson.dumps({"version": 1, "partitions": [{"topic": t, "partition": p} for t, p in partitions]})
