"""Takes forgotten throttles off, as long as nothing moves (ADM-108)."""

from collections.abc import Callable, Iterable

from kafkatool.core.operations.config_writes import ConfigWrite, read_configs
from kafkatool.core.operations.health.reading import Reading
from kafkatool.core.operations.reassignment.throttles import RATES, REPLICAS
from kafkatool.core.zookeeper.session import ZooKeeper


def plan_removal(zk: ZooKeeper, entities: Iterable[tuple[str, str]]) -> list[ConfigWrite]:
    """Plan to delete just the throttle keys of those, each bound to what was read; those without are left out."""
    reads = read_configs(zk, list(entities))
    writes = [read.dropping(RATES if read.entity_type == "brokers" else REPLICAS) for read in reads]
    return [write for write in writes if write.config != write.stored]


def remove(
    zk: ZooKeeper, entities: Iterable[tuple[str, str]], look: Callable[[ZooKeeper], Reading]
) -> list[tuple[str, str]]:
    """Delete the throttles of those, looking right before each write. Return which are off: not all, if something moves.

    Raises VersionConflictError: somebody else wrote such a config meanwhile.
    """
    done: list[tuple[str, str]] = []
    for entity in entities:
        if look(zk).is_anything_moving:
            break
        for write in plan_removal(zk, [entity]):
            write.write(zk)
        done.append(entity)
    return done
