"""Wait until every broker tells of topics what ZooKeeper has.

Each learns of a change when the controller tells it, one after another; a client asks whichever it likes.
"""

from collections.abc import Collection

from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.client.addresses import Address, parse_addresses
from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.operations.verification.replica_reader import layout_from_brokers
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.waiting import eventually

WAIT_S = 120


def await_told(zk: ZooKeeper, bootstrap: str, topics: Collection[str], access: BrokerAccess = PLAINTEXT_ACCESS) -> None:
    """Wait until each broker of ``bootstrap`` tells of these topics the leaders and in-sync replicas that are written."""
    addresses = parse_addresses(bootstrap)

    def told() -> bool:
        view = read_cluster(zk, topics)
        return set(view.topics) == set(topics) and all(_tells(address, view, access) for address in addresses)

    eventually(told, f"all brokers to tell of {', '.join(topics)}", WAIT_S)


def _tells(address: Address, view: ClusterView, access: BrokerAccess) -> bool:
    try:
        with Connections(access) as connections:
            layout = layout_from_brokers([address], lambda _: list(view.topics), connections)
    except BrokerUnreachableError:  # it stands still
        return False
    found = {p: (layout.leaders[p], set(layout.isr[p])) for p in layout.replicas}
    states = {p: state.leader_and_isr for p, state in view.states.items()}
    return found == {p: (states[p].leader, set(states[p].isr)) if p in states else None for p in view.partitions()}
