"""Takes forgotten throttles off, as long as nothing moves (ADM-108)."""

from collections.abc import Callable, Iterable, Mapping

from kafkatool.core.operations.config_writes import ConfigWrite, read_configs
from kafkatool.core.operations.health.reading import Reading
from kafkatool.core.zookeeper.session import ZooKeeper

Entity = tuple[str, str]
"""Whose throttle it is: ``brokers`` or ``topics``, and the id or name."""


def plan_removal(zk: ZooKeeper, throttles: Mapping[Entity, Iterable[str]]) -> list[ConfigWrite]:
    """Plan to delete just those keys, each write bound to what was read; entities without are left out."""
    reads = read_configs(zk, list(throttles))
    writes = [read.dropping(tuple(throttles[read.entity_type, read.name])) for read in reads]
    return [write for write in writes if write.config != write.stored]


def remove(
    entities: Iterable[Entity], look: Callable[[], Reading], take_off: Callable[[Entity, Reading], None]
) -> list[Entity]:
    """Delete the throttles of those, looking right before each write. Return which are off: not all, if something moves.

    Raises what ``look`` and ``take_off`` raise: VersionConflictError where somebody else wrote such a config meanwhile.
    """
    done: list[Entity] = []
    for entity in entities:
        reading = look()
        if reading.is_anything_moving:
            break
        take_off(entity, reading)
        done.append(entity)
    return done
