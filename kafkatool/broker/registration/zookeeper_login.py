"""How a broker or a controller logs in to ZooKeeper, and whose its nodes are (SEC-27).

Kafka's own ways: a login file named by KAFKA_OPTS, ``zookeeper.ssl.*`` and ``zookeeper.set.acl`` of server.properties.
"""

from collections.abc import Mapping

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperSecurity, with_tls
from kafkatool.core.zookeeper.acls import OPEN_NODES, OWN_NODES, NodeAcls

SET_ACL = "zookeeper.set.acl"


def session_security(properties: Mapping[str, str], login: ZooKeeperSecurity = OPEN) -> ZooKeeperSecurity:
    """Return how the session is opened: that login, and the TLS of the properties. Raises ConfigError."""
    return with_tls(login, properties, "server.properties")


def node_acls(properties: Mapping[str, str], security: ZooKeeperSecurity) -> NodeAcls:
    """Return whose the nodes are that it makes. Raises ConfigError: nobody's login cannot own any."""
    text = properties.get(SET_ACL, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{SET_ACL}={text}: expected true or false")
    if text == "false":
        return OPEN_NODES
    if not security.has_identity:
        raise ConfigError(
            f"{SET_ACL}=true needs an identity: a login by java.security.auth.login.config in KAFKA_OPTS, or "
            "zookeeper.ssl.keystore.location with zookeeper.ssl.client.enable=true"
        )
    return OWN_NODES
