"""AlterClientQuotas, DescribeClientQuotas and DescribeUserScramCredentials over a socket, on nodes in memory."""

import json
from collections.abc import Iterator

import pytest

from kafkatool.broker.administration.quotas import QuotaAdmin
from kafkatool.broker.administration.users import UserAdmin
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.core.protocol.messages import alter_client_quotas as altering
from kafkatool.core.protocol.messages import describe_client_quotas as describing
from kafkatool.core.protocol.messages import describe_user_scram_credentials as scram
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper

SHA_256, SHA_512 = 1, 2


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper(MemoryEnsemble())


@pytest.fixture
def client(zk: MemoryZooKeeper) -> Iterator[Client]:
    handlers = {key: one for key, one in load_handlers().items() if key in (48, 49, 50)}
    with broker_of(handlers, handler_context(quota_admin=QuotaAdmin(zk), user_admin=UserAdmin(zk))) as made:
        yield made


@pytest.mark.spec("ADM-78")
@pytest.mark.parametrize("version", [0, 1])
def test_an_entry_that_is_refused_keeps_no_other_from_being_carried_out(client: Client, version: int) -> None:
    def entry(user: str, value: float) -> altering.QuotaAlteration:
        part = describing.QuotaEntityPart(entity_type="user", entity_name=user)
        return altering.QuotaAlteration(entity=[part], ops=[altering.QuotaOp(key="producer_byte_rate", value=value)])

    request = altering.AlterClientQuotasRequest(entries=[entry("a", 0), entry("b", 5)])
    refused, done = client.call(altering.API, version, request).entries
    assert (refused.error_code, refused.entity[0].entity_name) == (42, "a")
    assert "must be above 0" in refused.error_message
    assert (done.error_code, done.error_message, done.entity[0].entity_name) == (0, None, "b")
    everything = describing.DescribeClientQuotasRequest(components=[], strict=False)
    (found,) = client.call(describing.API, version, everything).entries
    assert [(part.entity_type, part.entity_name) for part in found.entity] == [("user", "b")]
    assert [(one.key, one.value) for one in found.values] == [("producer_byte_rate", 5.0)]


@pytest.mark.spec("ADM-79", "SEC-90")
def test_who_has_scram_credentials_is_told_with_each_mechanisms_iterations(client: Client, zk: MemoryZooKeeper) -> None:
    credential = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations="
    users = {
        "both": {"SCRAM-SHA-256": f"{credential}4096", "SCRAM-SHA-512": f"{credential}8192"},
        "one": {"SCRAM-SHA-512": f"{credential}5000"},
        "none": {"producer_byte_rate": "1"},
    }
    for name, config in users.items():
        data = json.dumps({"version": 1, "config": config}).encode()
        zk.create(f"/config/users/{name}", data, make_parents=True)

    def told(names: list[str] | None) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        listed = None if names is None else [scram.ScramUserName(name=name) for name in names]
        answer = client.call(scram.API, 0, scram.DescribeUserScramCredentialsRequest(users=listed))
        assert (answer.error_code, answer.error_message) == (0, None)
        return {
            one.user: (one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
            for one in answer.results
        }

    both, one = (0, [(SHA_256, 4096), (SHA_512, 8192)]), (0, [(SHA_512, 5000)])
    assert told(None) == told([]) == {"both": both, "one": one}
    assert told(["one", "none", "gone"]) == {"one": one, "none": (91, []), "gone": (91, [])}
    assert told(["both", "one", "both"]) == {"both": (92, []), "one": one}
