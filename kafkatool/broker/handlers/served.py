"""The declaration a handler's file ends with, and the table of what this broker serves (table A of broker.md).

The table is collected from the files of this package: one that defines ``SERVED`` is served.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from kafkatool.core.protocol.codec.schema import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One API as this broker serves it."""

    api: Api
    versions: tuple[int, int]
    """First and last version served."""
    handle: Callable[[Any, Any], Any]
    """(request, call) -> response, or None when it is answered later through the call."""
    quick: bool = False
    """Whether an idle processor may run it: it waits for a partition's lock or the page cache, never for ZooKeeper."""
    announced_from: int | None = None
    """First version that ApiVersions announces, where that is below those served; it gets an error reply."""
    throttled_at_once_from: int = 0
    """First version that is told of a throttling at once and kept muted; below, the reply itself waits (BRK-22)."""
    charge: Callable[[Any, Any, int], None] | None = None
    """(request, call, size of the frame): charges the client's quota. None: no quota counts it."""
    expects_answer: Callable[[Any], bool] | None = None
    """Whether the client of that request reads answers. None: always."""
    answer_newer: Callable[[], Any] | None = None
    """Makes the response, in version 0, to a version above those served. None: the connection is closed."""
    from_controller: bool = False
    """Whether only the controller sends it: one of a newer Kafka is told which version to lower (BRK-4)."""

    @property
    def announced(self) -> tuple[int, int]:
        """Return first and last version as ApiVersions says them."""
        first, last = self.versions
        return (first if self.announced_from is None else self.announced_from), last


@cache
def load_handlers() -> Mapping[int, Served]:
    """Import all handlers and return them by API key."""
    package = __name__.rpartition(".")[0]
    modules = [import_module(f"{package}.{m.name}") for m in pkgutil.iter_modules(import_module(package).__path__)]
    return {served.api.key: served for m in modules if isinstance(served := getattr(m, "SERVED", None), Served)}
