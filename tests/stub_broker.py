"""A broker that says yes: it takes control requests on a socket and answers every one; nothing else is behind it.

For tests and measurements of a controller, whose brokers need only be there.
"""

import socket
import struct
import threading
import time
from typing import Final

from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.messages import api_versions, leader_and_isr, stop_replica, update_metadata
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kafkatool.core.protocol.messages.stop_replica import StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataResponse
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.core.protocol.apis import APIS

_YES: Final[dict[int, object]] = {
    leader_and_isr.API.key: LeaderAndIsrResponse(partitions=[]),
    stop_replica.API.key: StopReplicaResponse(partitions=[]),
    update_metadata.API.key: UpdateMetadataResponse(),
}
_START: Final = struct.Struct(">hhi")  # API, version, correlation id


class StubBroker:
    """Listens from the start; `register` makes controllers find it.

    Requests are remembered, or with ``reads`` False not even decoded, which costs next to nothing however long they are.
    """

    def __init__(self, *, reads: bool = True) -> None:
        self.requests: list[tuple[int, object]] = []  # version, message
        self.answered_at = 0.0  # time.time() of the last answer
        self.drop_next = 0  # so many requests are answered by the end of their connection
        self.api_keys: list[ApiVersionsResponseKey] = []  # what it says it knows
        self.answers = dict(_YES)  # by API key
        self._reads = reads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def versions(self) -> dict[str, set[int]]:
        """Return the versions of each kind of request that came, by its class."""
        found: dict[str, set[int]] = {}
        for version, message in list(self.requests):
            found.setdefault(type(message).__name__, set()).add(version)
        return found

    def close(self) -> None:
        """Gone from the network; from ZooKeeper it goes with the session it registered in. Safe to call twice."""
        if self._closing:
            return
        self._closing = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the controller was first
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            serving = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(serving)
            serving.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb", buffering=1 << 20) as stream:
                while len(length := stream.read(4)) == 4:
                    size_bytes = int.from_bytes(length, "big")
                    frame = stream.read(size_bytes)
                    if len(frame) < size_bytes:
                        return  # cut off: the controller is gone
                    if not self._answer(connection, frame):
                        return
        except OSError:
            pass  # the controller, or this broker, is gone

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        key, version, correlation_id = _START.unpack_from(frame)
        if self.drop_next:
            self.drop_next -= 1
            return False
        if self._reads:
            header, offset = decode_header(APIS[key], frame)
            self.requests.append((version, decode_request(APIS[key], header.api_version, frame, offset)))
        answer = ApiVersionsResponse(api_keys=self.api_keys) if key == api_versions.API.key else self.answers[key]
        chunks = encode_response(APIS[key], version, correlation_id, answer)
        connection.sendall(b"".join(bytes(c) for c in chunks if isinstance(c, Buffer)))
        self.answered_at = time.time()
        return True


def register(zookeeper: ZooKeeper, broker_id: int, port: int) -> None:
    """Register a broker on this machine, for as long as that session lasts."""
    info = BrokerInfo(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", port),))
    zookeeper.create(BrokerZnode.path(broker_id), BrokerZnode.encode(info, 0), ephemeral=True)
