"""How a test, its clients and its ``kt`` get into a cluster: by nothing at all, where it is open."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkatool.core.security.client_security import ClientSecurity
from kafkatool.core.security.zookeeper_security import OPEN as OPEN_ZOOKEEPER
from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity


@dataclass(frozen=True, slots=True)
class Access:
    """``librdkafka`` is configuration, ``environment`` what kt and brokers are started with."""

    librdkafka: Mapping[str, str] = field(default_factory=dict)
    brokers: ClientSecurity = field(default_factory=ClientSecurity)
    zookeeper: ZooKeeperSecurity = OPEN_ZOOKEEPER
    environment: Mapping[str, str] = field(default_factory=dict)


OPEN = Access()
