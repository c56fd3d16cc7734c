"""A request that ``--dry-run`` shows instead of sending it: to whom, which one, and its fields as they would be written."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.operations.requests.throttles import Change
from kafkatool.core.protocol.codec.schema import Api, fields_of
from kafkatool.core.protocol.codec.types import UUID
from kafkatool.core.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    incremental_alter_configs,
)
from kafkatool.core.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkatool.core.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request; ``broker`` is the one it would go to now, which on KRaft passes it on to the controller.

    ``kind``: what that node is called, a controller where those are asked themselves.
    """

    broker: int
    api: str
    version: int
    fields: dict[str, Any]
    kind: str = "broker"


def plan(
    client: ClusterClient, api: Api, request: object, *, broker: int | None = None, least: int = 0
) -> PlannedRequest:
    """Plan a request to that broker, or to the controller. Raises as sending it would."""
    target, version = client.version_of(api, broker=broker, least=least)
    return PlannedRequest(target, api.name, version, fields_in_order(request, version), client.KIND)


def plan_configs(client: ClusterClient, changes: Iterable[Change]) -> list[PlannedRequest]:
    """Plan changes of configs, each by the broker it goes to."""
    return [plan(client, incremental_alter_configs.API, request, broker=broker) for broker, request in changes]


def plan_moves(
    client: ClusterClient, requests: Iterable[AlterPartitionReassignmentsRequest], *, least: int = 0
) -> list[PlannedRequest]:
    """Plan requests that begin or cancel moves."""
    return [plan(client, alter_partition_reassignments.API, request, least=least) for request in requests]


def plan_log_dirs(
    client: ClusterClient, requests: Iterable[tuple[int, AlterReplicaLogDirsRequest]]
) -> list[PlannedRequest]:
    """Plan requests that begin moves between log directories, each by its broker."""
    return [plan(client, alter_replica_log_dirs.API, request, broker=broker) for broker, request in requests]


def fields_in_order(message: object, version: int) -> dict[str, Any]:
    """Return the fields that a version of a message carries, in wire order (ADM-20)."""
    carried = [f for f in fields_of(type(message)) if f.exists(version)]
    return {f.name: _shown(getattr(message, f.name), f.type == UUID, version) for f in carried}


def _shown(value: Any, is_uuid: bool, version: int) -> Any:
    if is_uuid:
        from kafkatool.core.model.uuids import uuid_text

        return uuid_text(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_shown(element, False, version) for element in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):  # salted passwords: as good as passwords
        return "[hidden]"
    return fields_in_order(value, version)
