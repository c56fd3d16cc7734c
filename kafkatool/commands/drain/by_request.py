"""``kt drain`` by requests to brokers, with and without ZooKeeper."""

from kafkatool.commands.shared.output import Output
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.operations.drain import requested_throttles
from kafkatool.core.operations.drain.by_request import ByRequest, Requested
from kafkatool.core.operations.requests import planned, reassignments, throttles


class DrainByRequest:
    """Plans are requests to the controller."""

    def __init__(self, client: ClusterClient) -> None:
        self._client, self.way = client, ByRequest(client)

    def cluster_id(self) -> str | None:
        return self._client.cluster_id

    def show_planned(self, out: Output, prepared: Requested | None) -> None:
        """Show the requests; brokers are asked whether they would take the throttles."""
        changes = requested_throttles.setting_changes(self._client, prepared.saved) if prepared is not None else []
        throttles.carry_out(self._client, changes, validate_only=True)
        shown = planned.plan_configs(self._client, changes)
        for batch in prepared.batches if prepared is not None else ():
            shown += planned.plan_moves(self._client, reassignments.requests(self._client, batch))
        out.planned_requests(shown, judged=bool(changes))
