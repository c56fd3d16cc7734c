"""TLS and SASL listeners, and raw sockets that speak to them."""

import contextlib
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from kafkatool.broker.embedded.secured.certificates import Authority, broker_names
from kafkatool.broker.handlers import api_versions
from kafkatool.broker.network.request_channel import Request
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.security.listeners import VersionAnswers, scram_mechanisms, secure_listeners
from kafkatool.broker.security.mechanisms import ScramUsers
from kafkatool.core.security import scram
from tests.broker.network.raw_client import RawClient, echo, network_config

PASSWORD = "store-secret"
HANDSHAKE_1 = bytes.fromhex("001100010000000200026b740005504c41494e")
HANDSHAKE_0 = bytes.fromhex("001100000000000100026b740005504c41494e")
ALICE = b"\0alice\0alice-secret"
MECHANISMS = "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256"
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";'
)
METADATA = bytes.fromhex("00030001000000090002" + b"kt".hex() + "00000000")
VERSIONS_0 = bytes.fromhex("001200000000000100026b74")


@contextlib.contextmanager
def secured(
    protocol: str,
    authority: Authority | None = None,
    handle: Callable[[Request], None] = echo,
    **properties: str,
) -> Iterator[SocketServer]:
    given = {
        "listeners": "MINE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": f"MINE:{protocol},PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISMS,
        "listener.name.mine.plain.sasl.jaas.config": JAAS,
        "kt.authentication.timeout.ms": "200000",  # a peer may stand still before its login
    }
    if authority is not None:
        broker = authority.certificate("broker", "CN=broker", PASSWORD, names=broker_names())
        given |= {
            "ssl.keystore.location": str(broker.keystore),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(authority.directory / "ca.pem"),
        }
    config = network_config(**(given | {k.replace("_", "."): v for k, v in properties.items()}))
    users = ScramUsers(scram_mechanisms(config))
    credential = scram.SCRAM_SHA_256.credential(b"alice-secret", salt=b"0123456789abcdef", iterations=4096)
    users.put("alice", {"SCRAM-SHA-256": credential.encode(), "consumer_byte_rate": "1"})
    versions = VersionAnswers(api_versions.answer, api_versions.answer_newer)
    server = SocketServer(config, secure_listeners(config, users, versions))
    try:
        server.bind()
        server.serve(handle)
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def client(server: SocketServer) -> Iterator[RawClient]:
    made = RawClient(server.endpoints[0].port)
    try:
        yield made
    finally:
        made.close()


def tls_client(server: SocketServer, authority: Authority, **certificate: Any) -> RawClient:
    made = RawClient(server.endpoints[0].port)
    context = ssl.create_default_context(cafile=authority.directory / "ca.pem")
    if certificate:
        context.load_cert_chain(certificate["certificate"], certificate["key"])
    made.socket = context.wrap_socket(made.socket, server_hostname="localhost")
    return made


def authenticate(token: bytes, version: int = 1, correlation_id: int = 2) -> bytes:
    return struct.pack(">hhih2si", 36, version, correlation_id, 2, b"kt", len(token)) + token


def handshake(mechanism: str, version: int = 1, correlation_id: int = 1) -> bytes:
    name = mechanism.encode()
    return struct.pack(">hhih2sh", 17, version, correlation_id, 2, b"kt", len(name)) + name
