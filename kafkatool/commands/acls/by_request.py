"""ACLs by requests to brokers, of any Kafka from 0.11 on, with and without ZooKeeper."""

from kafkatool.commands.acls.way import Acls
from kafkatool.commands.shared.output import Output
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.model.acls import Filter, FoundAcls
from kafkatool.core.operations.requests import acls, planned
from kafkatool.core.protocol.messages import create_acls, delete_acls


class AclsByRequest:
    """Any broker takes them, and passes them on where that is needed."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def read_cluster_id(self) -> str | None:
        return self._client.cluster_id

    def read(self, wanted: Filter) -> FoundAcls:
        return FoundAcls(acls.read_acls(self._client, wanted))

    def add(self, wanted: Acls) -> None:
        acls.add_acls(self._client, wanted)

    def remove(self, doomed: Acls) -> None:
        if any(doomed.values()):
            acls.remove_acls(self._client, doomed)

    def dry_run_add(self, out: Output, wanted: Acls) -> None:
        least = acls.least_for(wanted)
        out.planned_requests([planned.plan(self._client, create_acls.API, acls.creation(wanted), least=least)])

    def dry_run_remove(self, out: Output, doomed: Acls) -> None:
        request = planned.plan(self._client, delete_acls.API, acls.deletion(doomed), least=acls.least_for(doomed))
        out.planned_requests([request] if any(doomed.values()) else [])
