"""The topic configs that the cluster's brokers know, where they can be asked: newer Kafkas have more than kt (TOP-22)."""

from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.protocol.messages import describe_configs
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import TopicsZnode

_TOPIC = 2  # the resource type
_TIMEOUT_MS = 3000


def read_known_configs(zk: ZooKeeper, access: BrokerAccess = PLAINTEXT_ACCESS) -> frozenset[str] | None:
    """Ask one broker after the other for a topic's configs; None where none tells: too old, not reached, no topic.

    A broker describes only topics that exist, so it is asked for any one of them (Kafka 2.8.0 AdminManager.scala).
    """
    topic = min(zk.children(TopicsZnode.PATH) or (), default=None)
    if topic is None:
        return None
    with Connections(access) as connections:
        for broker in read_cluster(zk, [], states=False).brokers.values():
            try:
                known = _ask(broker, topic, connections)
            except BrokerUnreachableError:
                continue
            if known:
                return known
    return None


def _ask(broker: BrokerInfo, topic: str, connections: Connections) -> frozenset[str]:
    endpoint = connections.access.endpoint(broker)
    if endpoint is None:
        return frozenset()
    connection = connections.to(Address(endpoint.host, endpoint.port), timeout_ms=_TIMEOUT_MS)
    if connection.version_of(describe_configs.API) is None:
        return frozenset()
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource])
    answer = connection.send(describe_configs.API, request, timeout_ms=_TIMEOUT_MS)
    return frozenset(c.name for r in answer.results if not r.error_code for c in r.configs)
