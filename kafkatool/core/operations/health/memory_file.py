"""The file in which ``kt health --state`` keeps what looks leave, from one run of a monitor to the next.

Left out is what a run finds out anew by looking twice: no controller, throttles while nothing moves, what nobody leads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.health.memory import Free, Led, Memory, Progress, Suspicion
from kafkatool.core.planner.plan_files import replace_file

TOOL: Final = "kt health"
VERSION: Final = 1


def read(path: Path, cluster_id: str | None) -> Memory:
    """Return what was kept there of that cluster: nothing where there is no file, an empty one, or another version's.

    Raises RefusedError: it cannot be read, is not such a file, or is that of another cluster.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Memory()
    except OSError as e:
        raise RefusedError(f"cannot read {path}: {e.strerror}") from e
    if not content:
        return Memory()
    try:
        value = orjson.loads(content)
        if value["tool"] != TOOL:
            raise ValueError(value["tool"])
        if value["version"] != VERSION:
            return Memory()
        of, memory = value["cluster_id"], _decode(value)
    except (ValueError, LookupError, TypeError, AttributeError) as e:
        raise RefusedError(f"{path} is no state file of kt health, or damaged: remove it to begin anew") from e
    if of != cluster_id:
        raise RefusedError(f"{path} is that of cluster {of}, and this is cluster {cluster_id}: give each its own")
    return memory


def write(path: Path, memory: Memory, cluster_id: str | None) -> None:
    """Replace the file as a whole. Raises RefusedError."""
    replace_file(path, orjson.dumps({"tool": TOOL, "version": VERSION, "cluster_id": cluster_id, **_encode(memory)}))


def _encode(memory: Memory) -> dict[str, Any]:
    topics: dict[str, dict[str, tuple[Any, ...] | None]] = {}
    for p in sorted(memory.partitions):
        led = memory.led.get(p)
        topics.setdefault(p.topic, {})[str(p.partition)] = None if led is None else tuple(led)
    return {
        "looks": memory.looks,
        "epochs": memory.epochs,
        "terms": memory.terms,
        "mixed_since_s": memory.mixed_since_s,
        "topics": topics,
        "moves": [
            (*p, m.at_s, sorted(m.joined), sorted(m.copying), sorted(m.bytes.items()))
            for p, m in sorted(memory.moves.items())
        ],
        "unclean": [(*p, *suspicion) for p, suspicion in sorted(memory.unclean.items())],
        "free": [(*key, tuple(older), tuple(newer)) for key, (older, newer) in sorted(memory.free.items())],
    }


def _decode(value: Mapping[str, Any]) -> Memory:
    since = value["mixed_since_s"]
    topics = {
        TopicPartition(topic, int(number)): led
        for topic, partitions in value["topics"].items()
        for number, led in partitions.items()
    }
    return Memory(
        looks=int(value["looks"]),
        epochs=tuple((float(at_s), int(epoch)) for at_s, epoch in value["epochs"]),
        terms=tuple((float(at_s), (int(leader), int(epoch))) for at_s, (leader, epoch) in value["terms"]),
        mixed_since_s=None if since is None else float(since),
        partitions=frozenset(topics),
        led={p: _led(*led) for p, led in topics.items() if led is not None},
        moves={
            TopicPartition(topic, int(number)): Progress(
                float(at_s), frozenset(joined), frozenset(copying), {int(broker): int(held) for broker, held in sizes}
            )
            for topic, number, at_s, joined, copying, sizes in value["moves"]
        },
        unclean={
            TopicPartition(topic, int(number)): Suspicion(float(at_s), is_certain is True)
            for topic, number, at_s, is_certain in value["unclean"]
        },
        free={
            (int(broker), str(path)): (_figure(*older), _figure(*newer)) for broker, path, older, newer in value["free"]
        },
    )


def _led(topic_id: Any, leader: Any, epoch: Any, version: Any, isr: Any) -> Led:
    return Led(
        None if topic_id is None else str(topic_id),
        _number(leader),
        _number(epoch),
        _number(version),
        tuple(map(int, isr)),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _figure(at_s: Any, count: Any) -> Free:
    return Free(float(at_s), int(count))
