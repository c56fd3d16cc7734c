"""What the answers to a command leave out for want of rights (SEC-40).

A broker leaves out of an answer what its asker may not describe, as if it were not there. So what was left out, or may
have been, is noted by whoever asked, and is told beside the answer.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkatool.core.errors import NotPermittedError

_BROKER: Final = "broker "


class LeftOut(NamedTuple):
    """One thing that was not told. ``brokers`` did not tell it, ``consequence`` is what that means for the answer.

    ``only_maybe``: there may be nothing that was left out.
    """

    error: NotPermittedError
    consequence: str
    only_maybe: bool
    brokers: list[str]

    @property
    def text(self) -> str:
        """Return the refusal, with all brokers that it came from, and what follows from it."""
        e = self.error
        where = ", ".join(self.brokers)
        if len(self.brokers) > 1 and all(b.startswith(_BROKER) for b in self.brokers):
            where = "brokers " + ", ".join(b.removeprefix(_BROKER) for b in self.brokers)
        return f"not permitted: {e.operation} on {e.resource} ({where} as {e.principal}): {self.consequence}"


class Unseen:
    """What one command was not told for want of rights, each thing once, in the order it was met. Of one thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str], LeftOut] = {}

    def __iter__(self) -> Iterator[LeftOut]:
        return iter(self._found.values())

    def __bool__(self) -> bool:
        return bool(self._found)

    def note(self, error: NotPermittedError, consequence: str, *, only_maybe: bool = False) -> None:
        """Note what is not told, and what that means; ``only_maybe``: if there is anything."""
        key = (error.operation, error.resource, error.principal, consequence)
        known = self._found.setdefault(key, LeftOut(error, consequence, only_maybe, []))
        if error.broker not in known.brokers:
            known.brokers.append(error.broker)

    def take(self, resource: str) -> NotPermittedError | None:
        """Take out what was noted of that resource, to be told as the error it has become; None: nothing was."""
        for key, found in self._found.items():
            if found.error.resource == resource:
                del self._found[key]
                return found.error
        return None
