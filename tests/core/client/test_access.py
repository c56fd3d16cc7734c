"""By which of its listeners a broker is reached."""

import pytest

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.security.client_security import ClientSecurity
from kafkatool.core.zookeeper.znodes import BrokerZnode

SEVERAL = BrokerInfo(
    1,
    (
        Endpoint("INNER", "h", 1, "PLAINTEXT"),
        Endpoint("OUTER", "h", 2, "PLAINTEXT"),
        Endpoint("MINE", "h", 3, "SASL_SSL"),
    ),
)
THERE = "broker 1 has INNER PLAINTEXT h:1, OUTER PLAINTEXT h:2, MINE SASL_SSL h:3"
OLD = b'{"jmx_port":-1,"timestamp":"1","endpoints":["SSL://h:4","PLAINTEXT://h:5"],"host":"h","port":5,"version":3}'


@pytest.mark.spec("SEC-38")
@pytest.mark.parametrize(
    ("protocol", "listener", "port"),
    [("SASL_SSL", None, 3), ("PLAINTEXT", "OUTER", 2), ("PLAINTEXT", "inner", 1)],
    ids=["the only one", "named", "in small letters"],
)
def test_a_listener_is_the_named_one_or_the_only_one_of_the_protocol(
    protocol: str, listener: str | None, port: int
) -> None:
    access = BrokerAccess(ClientSecurity(protocol), listener)
    access.check([SEVERAL])
    found = access.endpoint(SEVERAL)
    assert found is not None and found.port == port


@pytest.mark.spec("SEC-38")
@pytest.mark.parametrize(
    ("protocol", "listener", "why"),
    [
        ("PLAINTEXT", None, f"several listeners speak PLAINTEXT: name one by --listener; {THERE}"),
        ("PLAINTEXT", "ELSE", f"no listener ELSE: {THERE}"),
        ("SSL", None, f"no listener speaks SSL (f): {THERE}"),
    ],
    ids=["several", "no such name", "none of the protocol"],
)
def test_none_or_several_are_refused_with_what_there_is(protocol: str, listener: str | None, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        BrokerAccess(ClientSecurity(protocol, source="f"), listener).check([SEVERAL])
    assert str(refused.value) == why


@pytest.mark.spec("SEC-38")
def test_a_registration_without_a_map_has_listeners_called_by_their_protocol() -> None:
    old = BrokerZnode.decode(1, OLD)
    for protocol, port in (("SSL", 4), ("PLAINTEXT", 5)):
        found = BrokerAccess(ClientSecurity(protocol)).endpoint(old)
        assert found is not None and (found.listener, found.port) == (protocol, port)
