"""A reply that is lost with the connection, while somebody else writes: whose node is it? (Z-40)"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkatool.core.errors import NodeExistsError
from kafkatool.core.zookeeper.session import Create, Delete, TransactionError
from tests.simulation.client import Pending, connection_lost
from tests.simulation.cluster import Cluster
from tests.simulation.server import OPERATOR
from tests.simulation.world import World


def _cluster() -> Cluster:
    cluster = Cluster(World(1), [1])
    cluster.start(1)
    cluster.world.run_for(2000)
    return cluster


@pytest.mark.spec("Z-40")
def test_an_empty_node_of_another_writer_does_not_make_a_lost_transaction_look_done() -> None:
    cluster = _cluster()
    process, server = cluster.processes[1], cluster.server
    submit = process.client.submit

    def lost(operation: Callable[[], Any]) -> Pending[Any]:
        process.client.submit = submit  # type: ignore[method-assign]
        server.commit([Create("/parent"), Create("/parent/state", b"theirs")], OPERATOR)
        pending: Pending[Any] = Pending(process.client)
        pending.fail(connection_lost())
        return pending

    process.client.submit = lost  # type: ignore[method-assign]
    with pytest.raises(TransactionError) as error:
        process.zookeeper.commit([Create("/parent"), Create("/parent/state", b"ours")])
    assert isinstance(error.value.cause, NodeExistsError)
    assert server.nodes["/parent/state"].data == b"theirs"


@pytest.mark.spec("Z-40")
def test_a_transaction_that_took_effect_before_its_reply_was_lost_is_not_repeated() -> None:
    cluster = _cluster()
    process, server = cluster.processes[1], cluster.server
    submit = process.client.submit

    def lost(operation: Callable[[], Any]) -> Pending[Any]:
        process.client.submit = submit  # type: ignore[method-assign]
        pending = submit(operation)
        pending.fail(connection_lost())
        return pending

    process.client.submit = lost  # type: ignore[method-assign]
    assert process.zookeeper.commit([Create("/parent"), Create("/parent/state", b"ours")]) == [None, None]
    assert server.nodes["/parent/state"].version == 0


@pytest.mark.spec("Z-40")
@pytest.mark.parametrize("anew", [True, False])
def test_a_deletion_that_took_effect_before_its_reply_was_lost_spares_the_next_node_of_that_name(anew: bool) -> None:
    cluster = _cluster()
    process, server = cluster.processes[1], cluster.server
    server.commit([Create("/request", b"first")], OPERATOR)
    node = process.zookeeper.get("/request")
    assert node is not None
    submit = process.client.submit

    def lost(operation: Callable[[], Any]) -> Pending[Any]:
        process.client.submit = submit  # type: ignore[method-assign]
        operation()
        if anew:
            server.commit([Create("/request", b"next")], OPERATOR)
        pending: Pending[Any] = Pending(process.client)
        pending.fail(connection_lost())
        return pending

    process.client.submit = lost  # type: ignore[method-assign]
    assert process.zookeeper.commit([Delete("/request", node.version, node.czxid)]) == [None]
    assert ("/request" in server.nodes) == anew
