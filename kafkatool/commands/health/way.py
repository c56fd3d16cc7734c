"""What ``kt health`` asks of a way to a cluster: its nodes in ZooKeeper, or requests to its brokers."""

from collections.abc import Sequence
from typing import Protocol

from kafkatool.commands.shared.output import Output
from kafkatool.core.operations.health.forgotten import Entity
from kafkatool.core.operations.health.reading import Reading


class Way(Protocol):
    """Looks at a cluster, and takes throttles off it; ``dry_run_take_off`` prints what that would write or send."""

    def note_unreachable(self, out: Output) -> None: ...
    def look(self) -> Reading: ...
    def take_off(self, entity: Entity, reading: Reading) -> None: ...
    def dry_run_take_off(self, out: Output, entities: Sequence[Entity], reading: Reading) -> None: ...
