"""Request handlers, one file per API, and the one table of what this broker serves (table A of broker.md).

A handler's module is named here and imported when the broker starts, so that a handler may use any part of the broker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages.registry import APIS

Handle = Callable[[Any, Any], Any]
"""(request, call) -> response, or None when it is answered later through the call."""

SERVED: Mapping[str, tuple[int, int]] = {  # handler module -> first and last version
    "produce": (3, 8),
    "fetch": (4, 11),
    "list_offsets": (1, 5),
    "metadata": (0, 9),
    "leader_and_isr": (0, 2),
    "stop_replica": (0, 2),
    "update_metadata": (0, 5),
    "controlled_shutdown": (0, 2),
    "offset_commit": (0, 7),
    "offset_fetch": (0, 5),
    "find_coordinator": (0, 2),
    "join_group": (0, 5),
    "heartbeat": (0, 3),
    "leave_group": (0, 2),
    "sync_group": (0, 3),
    "describe_groups": (0, 3),
    "list_groups": (0, 2),
    "api_versions": (0, 3),
    "create_topics": (0, 3),
    "delete_topics": (0, 3),
    "init_producer_id": (0, 1),
    "offset_for_leader_epoch": (0, 3),
    "delete_groups": (0, 1),
    "describe_configs": (0, 2),
    "alter_configs": (0, 1),
    "incremental_alter_configs": (0, 0),
    "create_partitions": (0, 1),
    "delete_records": (0, 1),
    "describe_log_dirs": (0, 1),
}

QUICK = frozenset({0, 1, 2, 9, 12, 18, 23})
"""Keys of APIs whose handlers wait for nothing but a partition's lock or the page cache: produce, fetch, list offsets,
offset fetch, heartbeat, ApiVersions, offset for leader epoch. The others may ask ZooKeeper or hold long locks."""

ANNOUNCED_BELOW = {0: 0}
"""API key -> lowest version announced though refused: librdkafka drops compression otherwise (BRK-155)."""


@dataclass(frozen=True, slots=True)
class Served:
    """One API as this broker serves it."""

    api: Api
    min_version: int
    max_version: int
    handle: Handle

    @property
    def announced_min_version(self) -> int:
        """What ApiVersions says; versions below ``min_version`` get an error reply."""
        return ANNOUNCED_BELOW.get(self.api.key, self.min_version)


def load_handlers() -> dict[int, Served]:
    """API key -> how it is served."""
    modules = {name: import_module(f"kafkatool.core.protocol.messages.{name}").API.key for name in SERVED}
    return {
        key: Served(APIS[key], *SERVED[name], import_module(f"{__name__}.{name}").handle)
        for name, key in modules.items()
    }
