"""SCRAM users by requests to brokers, of Kafka from 2.7 on with ZooKeeper, from 3.5 on without."""

from kafkatool.commands.shared.output import Output
from kafkatool.commands.users.way import Change
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.operations.requests import planned, users
from kafkatool.core.operations.users import ScramUser, check_deleted
from kafkatool.core.protocol.messages import alter_user_scram_credentials


class UsersByRequest:
    """The controller changes them, any broker tells of them."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def read_cluster_id(self) -> str | None:
        return self._client.cluster_id

    def read(self, name: str | None) -> list[ScramUser]:
        return users.read_users(self._client, None if name is None else [name])

    def is_hidden(self, name: str) -> bool:
        return True  # as far as kt can tell: the brokers keep it

    def alter(self, change: Change, password: bytes) -> None:
        users.alter_user(self._client, users.alteration(change.user, change.added, password, change.deleted))

    def dry_run(self, out: Output, change: Change) -> None:
        there = {m: "" for user in self.read(change.user) for m in user.iterations}
        check_deleted(there, change.deleted)
        request = users.alteration(change.user, change.added, b"", change.deleted)
        out.planned_requests([planned.plan(self._client, alter_user_scram_credentials.API, request)])

    def altered(self, name: str) -> str:
        return f"Completed updating config for user {name}."
