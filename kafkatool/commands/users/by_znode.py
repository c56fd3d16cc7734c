"""SCRAM users in the nodes of ZooKeeper: they can be made before the first broker starts."""

from kafkatool.commands.shared.options import read_cluster_id, show_planned
from kafkatool.commands.shared.output import Output
from kafkatool.commands.users.way import Change
from kafkatool.core.operations import users
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.users import USERS, ScramUser, check_deleted
from kafkatool.core.operations.znode_acls import check_hidden
from kafkatool.core.security.scram import MECHANISMS
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode


class UsersByZnode:
    """One node for each user, and a change node for each write."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk

    def read_cluster_id(self) -> str | None:
        return read_cluster_id(self._zk)

    def read(self, name: str | None) -> list[ScramUser]:
        return users.read_users(self._zk, None if name is None else [name])

    def is_hidden(self, name: str) -> bool:
        return check_hidden(self._zk, ConfigZnode.path(USERS, name))

    def alter(self, change: Change, password: bytes) -> None:
        credentials = {m: users.make_credential(m, password, n) for m, n in change.added.items()}
        users.alter_user(self._zk, change.user, credentials, change.deleted)

    def dry_run(self, out: Output, change: Change) -> None:
        """Print the writes, with a word in place of each new credential and of those that stay."""
        (read,) = read_configs(self._zk, [(USERS, change.user)])
        check_deleted(read.config, change.deleted)
        hidden = dict.fromkeys((*change.added, *(m for m in MECHANISMS if m in read.config)), "[hidden]")
        ops = read.setting(hidden).dropping(change.deleted).ops
        show_planned(out, self._zk, ops, sequential_paths=(ConfigChangeZnode.PREFIX,))

    def altered(self, name: str) -> str:
        return f"Completed updating config for entity: user-principal '{name}'."
