"""The health of a cluster by requests to its brokers, with and without ZooKeeper."""

from collections.abc import Sequence

from kafkatool.commands.shared.output import Output
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.operations.health import by_request
from kafkatool.core.operations.health.forgotten import Entity
from kafkatool.core.operations.health.reading import Reading
from kafkatool.core.operations.requests import planned, throttles


class HealthByRequest:
    """Each broker is asked to take off its own rate; any takes off what is set on topics."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        client.unseen = Unseen()  # told as unknown beside a check: an exit code of 1 would be a verdict

    def note_unreachable(self, out: Output) -> None:
        """Say nothing: without any broker there is no client."""

    def look(self) -> Reading:
        return by_request.read(self._client)

    def take_off(self, entity: Entity, reading: Reading) -> None:
        throttles.remove(self._client, _throttles([entity], reading))

    def dry_run_take_off(self, out: Output, entities: Sequence[Entity], reading: Reading) -> None:
        removal = throttles.removal_requests(_throttles(entities, reading))
        throttles.carry_out(self._client, removal, validate_only=True)
        out.planned_requests(planned.plan_configs(self._client, removal), judged=bool(removal))


def _throttles(entities: Sequence[Entity], reading: Reading) -> throttles.Set:
    """Return the keys that the look found on those, and no others."""
    found = {entity: list(keys) for entity, keys in reading.throttles.items() if entity in entities}
    return throttles.Set(
        {int(name): keys for (kind, name), keys in found.items() if kind == "brokers"},
        {name: keys for (kind, name), keys in found.items() if kind == "topics"},
    )
