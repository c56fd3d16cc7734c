"""What ``kt drain`` asks of a way to a cluster: its nodes in ZooKeeper, or requests to its brokers."""

from typing import Any, Protocol

from kafkatool.commands.shared.output import Output
from kafkatool.core.operations.drain.way import Way


class DrainWay(Protocol):
    """The way that the drain goes; ``show_planned`` prints what a plan would write or send, None: there is nothing to do."""

    @property
    def way(self) -> Way[Any]: ...
    def cluster_id(self) -> str | None: ...
    def show_planned(self, out: Output, prepared: Any) -> None: ...
