"""A broker made of functions: it answers each request as the test says, and remembers what was asked."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from kafkatool.core.client.addresses import Address
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.messages import api_versions, metadata
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.core.protocol.apis import APIS

Answer = Callable[[Any], object]  # from a request; None: the connection is closed without an answer
OLD: Final = 2  # the newest version of ApiVersions that a broker before 2.4 knows
NO_KAFKA: Final = -1


class FakeBroker:
    """Serves ``apis`` in the versions given. ``knows`` are the brokers it tells of; itself alone unless set."""

    def __init__(
        self, broker_id: int, apis: Mapping[Api, tuple[int, int]] = {}, *, newest_api_versions: int = 3
    ) -> None:
        self.id = broker_id
        self.apis = {metadata.API: (0, 12), **apis}
        self.answers: dict[int, Answer] = {metadata.API.key: lambda _: self.metadata()}
        self.asked: list[tuple[str, int, Any]] = []  # API's name, version, request
        self.client_ids: set[str | None] = set()
        self.cluster_id: str | None = "C"
        self.controller_id = broker_id
        self.knows: list[FakeBroker] = [self]
        self.connections = 0
        self._newest = newest_api_versions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse connections from now on, and end those there are; safe to call twice."""
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._threads[0].join()
        self.drop_connections()
        for thread in self._threads:
            thread.join()

    def drop_connections(self) -> None:
        """End the connections there are, as a broker does with idle ones."""
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already

    def count(self, api: Api) -> int:
        """Return how often that was asked."""
        return sum(name == api.name for name, _, _ in self.asked)

    def metadata(self, topics: list[metadata.MetadataResponseTopic] | None = None) -> MetadataResponse:
        """Make the metadata it tells."""
        brokers = [MetadataResponseBroker(node_id=b.id, host=b.address.host, port=b.address.port) for b in self.knows]
        return MetadataResponse(
            brokers=brokers, cluster_id=self.cluster_id, controller_id=self.controller_id, topics=topics or []
        )

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:  # OSError: the client was first
            while len(length := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(length, "big"))
                api, version = APIS[int.from_bytes(frame[:2], "big")], int.from_bytes(frame[2:4], "big")
                header, body = decode_header(api, frame)
                self.client_ids.add(header.client_id)
                request = decode_request(api, version, frame, body)
                self.asked.append((api.name, version, request))
                if api is api_versions.API and self._newest < 0:
                    return
                if api is api_versions.API:
                    answer, version = self._versions(version)
                else:
                    answer = self.answers[api.key](request)
                if answer is None:
                    return
                chunks = encode_response(api, version, header.correlation_id, answer)
                connection.sendall(b"".join(c for c in chunks if isinstance(c, bytes | bytearray | memoryview)))

    def _versions(self, version: int) -> tuple[object, int]:
        if version > self._newest:
            own = [key for key in self._keys() if key.api_key == api_versions.API.key]
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own), 0
        return ApiVersionsResponse(api_keys=self._keys()), version

    def _keys(self) -> list[ApiVersionsResponseKey]:
        apis = self.apis.items()
        return [ApiVersionsResponseKey(api_key=api.key, min_version=low, max_version=high) for api, (low, high) in apis]
