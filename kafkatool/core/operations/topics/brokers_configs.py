"""The topic configs that the cluster's brokers know, where they can be asked: newer Kafkas have more than kt (TOP-22)."""

from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.protocol.messages import api_versions, describe_configs
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest
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
    for broker in read_cluster(zk, [], states=False).brokers.values():
        try:
            known = _ask(broker, topic, access)
        except (BrokerUnreachableError, ProtocolError):
            continue
        if known:
            return known
    return None


def _ask(broker: BrokerInfo, topic: str, access: BrokerAccess) -> frozenset[str]:
    endpoint = access.endpoint(broker)
    if endpoint is None:
        return frozenset()
    with access.connect(endpoint.host, endpoint.port, client_id="kt-topics", timeout_ms=_TIMEOUT_MS) as connection:
        served = connection.send(api_versions.API, 0, ApiVersionsRequest()).api_keys
        version = next(
            (
                v
                for v in (0, 1)
                if any(k.api_key == describe_configs.API.key and k.min_version <= v <= k.max_version for k in served)
            ),
            None,
        )
        if version is None:
            return frozenset()
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)
        answer = connection.send(describe_configs.API, version, DescribeConfigsRequest(resources=[resource]))
    return frozenset(c.name for r in answer.results if not r.error_code for c in r.configs)
