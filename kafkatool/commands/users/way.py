"""What the actions ask of a way to a cluster's SCRAM users: the nodes in ZooKeeper, or requests to brokers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafkatool.commands.shared.output import Output

if TYPE_CHECKING:
    from kafkatool.core.operations.users import ScramUser


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a user: ``added`` are iterations by mechanism."""

    user: str
    added: Mapping[str, int]
    deleted: Sequence[str]


class Way(Protocol):
    """Reads and changes users; ``dry_run`` prints what a change would write or send, without secrets."""

    def read_cluster_id(self) -> str | None: ...
    def read(self, name: str | None) -> "list[ScramUser]": ...
    def is_hidden(self, name: str) -> bool:
        """Tell whether others cannot read what is written of a user. Raises RefusedError where it must not be written."""
        ...

    def alter(self, change: Change, password: bytes) -> None: ...
    def dry_run(self, out: Output, change: Change) -> None: ...
    def altered(self, name: str) -> str:
        """Say that a user was altered, in Kafka's words for this way."""
        ...
