"""What a whole broker knows and has arranged by the time its listeners serve."""

from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.security.mechanisms import ScramUsers
from kafkatool.broker.server import Broker
from kafkatool.core.model.acls import Entry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from kafkatool.core.protocol.messages import create_acls
from kafkatool.core.security import scram
from kafkatool.core.zookeeper.acl_znodes import AclZnode
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.test_server import client_of, config

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)


@pytest.mark.spec("SEC-54", "SEC-67", "SEC-79")
def test_rights_and_users_are_known_before_anybody_is_served_and_certificates_are_looked_at_daily(
    zk_connect: str, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = frozenset({Entry("User:alice", "*", Operation.READ, Permission.ALLOW)})
    zk.create(AclZnode.path(ORDERS), AclZnode.encode(allowed), make_parents=True)
    credential = scram.SCRAM_SHA_256.credential(b"alice-secret", salt=b"0123456789abcdef", iterations=4096)
    user = b'{"version":1,"config":{"SCRAM-SHA-256":"%s"}}' % credential.encode().encode()
    zk.create("/config/users/alice", user, make_parents=True)
    known: list[object] = []
    daily: list[dict[str, int]] = []
    made: list[Any] = []
    serve, schedule = SocketServer.serve, Scheduler.schedule

    def noting(self: SocketServer, *args: Any, **more: Any) -> None:
        (authorizer,) = (one for one in made if isinstance(one, Authorizer))
        (users,) = (one for one in made if isinstance(one, ScramUsers))
        known.extend([dict(authorizer.table), users.find("alice", "SCRAM-SHA-256")])
        serve(self, *args, **more)

    def noting_periods(self: Scheduler, name: str, *args: Any, **periods: Any) -> Any:
        if name == "certificate-dates":
            daily.append(periods)
        return schedule(self, name, *args, **periods)

    for kind in (Authorizer, ScramUsers):
        make = kind.__init__

        def keeping(self: Any, *args: Any, make: Any = make, **more: Any) -> None:
            made.append(self)
            make(self, *args, **more)

        monkeypatch.setattr(kind, "__init__", keeping)
    monkeypatch.setattr(SocketServer, "serve", noting)
    monkeypatch.setattr(Scheduler, "schedule", noting_periods)
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    with Broker(config(zk_connect, tmp_path / "data", 1, **properties)):
        pass
    assert known == [{ORDERS: allowed}, credential]
    assert daily == [{"delay_ms": 86_400_000, "period_ms": 86_400_000}]


@pytest.mark.spec("SEC-88")
@pytest.mark.parametrize(("protocol", "code"), [("1.1", 42), ("2.0", 0)])
def test_prefixed_acls_are_made_from_protocol_version_2_0_on(
    zk_connect: str, tmp_path: Path, protocol: str, code: int
) -> None:
    properties = {
        "inter_broker_protocol_version": protocol,
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    creation = create_acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="ord",
        pattern_type=PatternType.PREFIXED,
        principal="User:alice",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    with Broker(config(zk_connect, tmp_path / "data", 1, **properties)) as broker, client_of(broker) as client:
        answer = client.send(create_acls.API, 1, create_acls.CreateAclsRequest(creations=[creation]))
    assert [one.error_code for one in answer.results] == [code]
