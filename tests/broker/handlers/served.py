"""Handlers behind real sockets, and a context of which only the parts a test names exist."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from kafkatool.broker.handlers.call import HandlerContext, Served
from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.limits import Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_response, encode_request
from kafkatool.core.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)
from tests.broker.network.raw_client import RawClient, network_config


class Absent:
    """A part the test did not give; touching it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the handler used {name} of a part this test does not have")


def handler_context(**parts: Any) -> HandlerContext:
    absent: Any = Absent()
    given: dict[str, Any] = {
        "config": network_config(),
        "cluster_id": "test-cluster",
        "metadata_cache": MetadataCache(1),
    }
    given["client_quotas"] = ClientQuotas(given["config"])
    given["authorizer"] = None
    given["limits"] = Limits()
    for field in fields(HandlerContext):
        given.setdefault(field.name, absent)
    return HandlerContext(**(given | parts))


class Client(RawClient):
    """Sends requests and reads responses."""

    correlation_id = 100

    def send_request(self, api: Api, version: int, request: Any) -> None:
        self.correlation_id += 1
        self.socket.sendall(encode_request(api, version, self.correlation_id, "test", request))

    def receive_response(self, api: Api, version: int) -> Any:
        correlation_id, response = decode_response(api, version, self.receive())
        assert correlation_id == self.correlation_id
        return response

    def call(self, api: Api, version: int, request: Any) -> Any:
        self.send_request(api, version, request)
        return self.receive_response(api, version)


@contextmanager
def broker_of(
    served: Mapping[int, Served], context: HandlerContext, *, quick_apis: Collection[int] = (), **properties: str
) -> Iterator[Client]:
    """Yield a client of a network layer with those handlers."""
    server = SocketServer(network_config(**properties))
    timer = Timer("test")
    try:
        server.bind()
        server.serve(Dispatcher(served, replace(context, timer=timer)), quick_apis=quick_apis)
        client = Client(server.endpoints[0].port)
        try:
            yield client
        finally:
            client.close()
    finally:
        server.close()
        timer.close()


def live(broker_id: int, rack: str | None = None, **listeners: int) -> UpdateMetadataBroker:
    """Make a live broker; ``listeners`` name -> port, PLAINTEXT=9000+id when none is given."""
    named = listeners or {"PLAINTEXT": 9000 + broker_id}
    endpoints = [UpdateMetadataEndpoint(port=p, host=f"h{broker_id}", listener_name=n) for n, p in named.items()]
    return UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=rack)


def state(
    topic: str, partition: int, leader: int, replicas: list[int], isr: list[int] | None = None, epoch: int = 3
) -> UpdateMetadataPartition:
    return UpdateMetadataPartition(
        topic=topic,
        partition=partition,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=replicas if isr is None else isr,
        zk_version=0,
        replicas=replicas,
    )


def update(
    *states: UpdateMetadataPartition, brokers: list[UpdateMetadataBroker], controller: int = 1
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=controller, controller_epoch=1, partition_states=list(states), live_brokers=brokers
    )
