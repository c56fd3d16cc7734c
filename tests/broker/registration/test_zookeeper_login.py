import pytest

from kafkatool.broker.registration.zookeeper_login import node_acls, session_security
from kafkatool.core.errors import ConfigError
from kafkatool.core.security.secret import Secret
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperLogin, ZooKeeperSecurity
from kafkatool.core.zookeeper.acls import OPEN_NODES, OWN_NODES

KAFKA = ZooKeeperSecurity(ZooKeeperLogin("sasl", "kafka", Secret("word"), "jaas.conf"))


@pytest.mark.spec("SEC-27")
def test_nodes_are_open_unless_told_otherwise_which_needs_an_identity() -> None:
    assert node_acls({}, KAFKA) == node_acls({"zookeeper.set.acl": "false"}, OPEN) == OPEN_NODES
    assert node_acls({"zookeeper.set.acl": "true"}, KAFKA) == OWN_NODES
    with pytest.raises(ConfigError, match=r"login\.config in KAFKA_OPTS, or zookeeper\.ssl\.keystore\.location"):
        node_acls({"zookeeper.set.acl": "true"}, OPEN)
    with pytest.raises(ConfigError, match="expected true or false"):
        node_acls({"zookeeper.set.acl": "yes"}, KAFKA)


@pytest.mark.spec("SEC-27")
def test_tls_is_that_of_the_properties_and_the_login_stays() -> None:
    assert session_security({}, KAFKA) is KAFKA
    secured = session_security({"zookeeper.ssl.client.enable": "true"}, KAFKA)
    assert secured.tls is not None
    assert secured.login is KAFKA.login
