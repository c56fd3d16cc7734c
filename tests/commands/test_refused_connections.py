"""kt where TLS or a login comes to nothing: one line that says why, exit code 1, and no second try (SEC-15, SEC-116)."""

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.secured.certificates import Authority, Certificate, broker_names
from kafkatool.commands.main import kt
from tests.broker.network.secured import PASSWORD, secured
from tests.core.security.tls_peer import tls_peer
from tests.waiting import eventually

_HELD_UP_S = 2.0  # kt's own limits are longer: within this time nothing but the fault has said anything
KEY_OF_RSA = "TLS_RSA_WITH_AES_128_CBC_SHA"  # the peer's key is of another kind
ASKS = "asks for a client certificate: give ssl.keystore.location"
ASKS_OR_NOT = "asks for a client certificate, or takes not the one given: see ssl.keystore.location"
NOTHING_IN_COMMON = "has no TLS version or cipher suite in common, or asks for a client certificate"
NO_VERSION = "has no TLS version in common: see ssl.enabled.protocols"


class Certificates:
    """Those of one authority, and of another that nobody trusts; made when they are asked for."""

    def __init__(self, directory: Path) -> None:
        self.good = Authority.open(directory)
        self._other = Authority.open(directory, "other")

    @property
    def trusted(self) -> Path:
        return self.good.directory / "ca.pem"

    def __call__(self, kind: str) -> Certificate:
        match kind:
            case "stranger's":
                return self._other.certificate("stranger", "CN=stranger", PASSWORD, names=broker_names())
            case "expired":
                return self.good.certificate(kind, "CN=x", PASSWORD, names=broker_names(), validity="expired")
            case "not yet valid":
                return self.good.certificate("early", "CN=x", PASSWORD, names=broker_names(), validity="not yet")
            case "another's":
                return self.good.certificate("b1", "CN=b1", PASSWORD, names=["b1.example", "10.9.8.7"])
            case _:
                return self.good.certificate("good", "CN=good", PASSWORD, names=broker_names())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@dataclass(frozen=True)
class Fault:
    """What peer and client have, and what kt says of ``PEER``, an address."""

    says: str
    peer: str = "good"
    asks: bool = False
    client: str = ""
    versions: str = ""
    suites: str = ""
    adjust: Callable[[ssl.SSLContext], None] = lambda _: None
    greetings: int = 1


def at_most_1_2(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def at_least_1_3(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3


UNTRUSTED = "PEER: its certificate is not trusted (self-signed certificate in certificate chain)"
OF_OTHERS = "PEER: its certificate is not 127.0.0.1's: it has b1.example, 10.9.8.7"
NOT_YET = "PEER: its certificate is not yet valid; is this machine's clock right?"
FAULTS = {
    "unknown authority": Fault(f"{UNTRUSTED}: see ssl.truststore.location", peer="stranger's"),
    "expired": Fault("PEER: its certificate has expired", peer="expired"),
    "not yet valid": Fault(NOT_YET, peer="not yet valid"),
    "wrong host name": Fault(OF_OTHERS, peer="another's", greetings=2),  # the second for the names it has
    "no certificate of ours": Fault(f"PEER {ASKS}", asks=True, versions="TLSv1.3"),
    "no certificate of ours, by TLSv1.2": Fault(f"PEER {NOTHING_IN_COMMON}", asks=True, versions="TLSv1.2"),
    "ours unknown": Fault("PEER does not trust our certificate", asks=True, client="stranger's"),
    "ours expired": Fault("PEER says that our certificate has expired", asks=True, client="expired"),
    "ours not yet valid": Fault(f"PEER {ASKS_OR_NOT}", asks=True, client="not yet valid"),
    "ours unknown, by TLSv1.2": Fault(
        "PEER does not trust our certificate", asks=True, client="stranger's", versions="TLSv1.2"
    ),
    "newer version": Fault(f"PEER {NO_VERSION}", versions="TLSv1.3", adjust=at_most_1_2),
    "older version": Fault(f"PEER {NO_VERSION}", versions="TLSv1.2", adjust=at_least_1_3),
    "no cipher": Fault(f"PEER {NOTHING_IN_COMMON}", versions="TLSv1.2", suites=KEY_OF_RSA),
}


def properties(fault: Fault, certificates: Certificates, prefix: str) -> dict[str, str]:
    given = {"truststore.location": str(certificates.trusted)}
    if fault.versions:
        given["enabled.protocols"] = fault.versions
    if fault.suites:
        given["cipher.suites"] = fault.suites
    if fault.client:
        given |= {
            "keystore.location": str(certificates(fault.client).keystore),
            "keystore.password": PASSWORD,
            **({} if prefix.startswith("z") else {"key.password": PASSWORD}),
        }
    return {prefix + key: value for key, value in given.items()}


def run(directory: Path, given: dict[str, str], *flags: str) -> str:
    """Have kt list topics by a file of these properties, the last of the flags; return what it says, with exit code 1."""
    file = directory / "client.properties"
    file.touch(0o600)
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    result = CliRunner(env={"KAFKA_OPTS": None}).invoke(kt, ["topics", "list", *flags, str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def assert_says(expected: tuple[str, int], ask: Callable[[], tuple[str, int]]) -> None:
    """Ask, and again only where a process that was held up may have had another answer, or two tries."""

    def is_said() -> bool:
        began = time.monotonic()
        got = ask()
        if time.monotonic() - began < _HELD_UP_S:
            assert got == expected
        return got == expected

    eventually(is_said, f"kt to say {expected[0]}")


def ask_broker(directory: Path, address: str, given: dict[str, str]) -> str:
    said = run(directory, given, "--bootstrap-server", address, "--command-config")
    return said.replace(address, "PEER")


@pytest.mark.spec("SEC-15", "SEC-116")
@pytest.mark.parametrize("name", FAULTS)
def test_a_broker_with_which_tls_comes_to_nothing_is_told_of_in_one_line(
    name: str, certificates: Certificates, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    given = {"security.protocol": "SSL", **properties(fault, certificates, "ssl.")}
    trusts = certificates.trusted if fault.asks else None
    says = fault.says.removeprefix("PEER").lstrip(": ")

    def ask() -> tuple[str, int]:
        with tls_peer(certificates(fault.peer), trusts=trusts, adjust=fault.adjust) as peer:
            return ask_broker(tmp_path, peer.address, given), peer.greetings

    assert_says((f"kt: no broker answers: PEER: {says}\n", fault.greetings), ask)


@pytest.mark.spec("SEC-15", "SEC-116")
@pytest.mark.parametrize("name", FAULTS)
def test_a_zookeeper_with_which_tls_comes_to_nothing_is_told_of_in_one_line(
    name: str, certificates: Certificates, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    given = {"zookeeper.ssl.client.enable": "true", **properties(fault, certificates, "zookeeper.ssl.")}
    trusts = certificates.trusted if fault.asks else None

    def ask() -> tuple[str, int]:
        with tls_peer(certificates(fault.peer), trusts=trusts, adjust=fault.adjust) as peer:
            said = run(tmp_path, given, "--zookeeper", peer.address, "--zk-tls-config-file")
            return said.replace(peer.address, "PEER"), peer.greetings

    assert_says((f"kt: {fault.says}\n", fault.greetings), ask)


# --- what a real listener of ours says to wrong clients -------------------------------------------------------------

LOGIN = 'x.PlainLoginModule required username="alice" password="alice-secret";'
BY_SCRAM = 'x.ScramLoginModule required username="{}" password="{}";'
CLOSED = "kt: no broker answers: PEER: closed during ApiVersions: {} is no Kafka broker\n"
NO_TLS = "kt: no broker answers: PEER: does not speak TLS: is it the plaintext port?\n"
NEEDS_LOGIN = (
    "kt: no broker answers: PEER: closed the connection upon Metadata: does its listener ask for a login (SASL)?\n"
)
REFUSED = "kt: PEER refused the login of {} (SASL {}): Authentication failed{} (58): check FILE\n"
BY_PLAIN = ": Invalid username or password"
PROOF = " during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
WRONG_CLIENTS: dict[str, tuple[str, dict[str, str], str]] = {
    "TLS on a plaintext port": ("PLAINTEXT", {"security.protocol": "SSL"}, NO_TLS),
    "TLS and SASL on a port of SASL": ("SASL_PLAINTEXT", {"security.protocol": "SASL_SSL"}, NO_TLS),
    "plaintext on a TLS port": ("SSL", {"security.protocol": "PLAINTEXT"}, CLOSED.format("speaks TLS or")),
    "SASL on a TLS port": ("SASL_SSL", {"security.protocol": "SASL_PLAINTEXT"}, CLOSED.format("speaks TLS or")),
    "no login on a port of SASL": ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"}, NEEDS_LOGIN),
    "no login on a port of SASL and TLS": ("SASL_SSL", {"security.protocol": "SSL"}, NEEDS_LOGIN),
    "wrong password": (
        "SASL_PLAINTEXT",
        {"sasl.jaas.config": LOGIN.replace("alice-secret", "bad")},
        REFUSED.format("alice", "PLAIN", BY_PLAIN),
    ),
    "unknown user": (
        "SASL_SSL",
        {"sasl.jaas.config": LOGIN.replace("alice", "bob")},
        REFUSED.format("bob", "PLAIN", BY_PLAIN),
    ),
    "wrong password by SCRAM": (
        "SASL_SSL",
        {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": BY_SCRAM.format("alice", "bad")},
        REFUSED.format("alice", "SCRAM-SHA-256", PROOF),
    ),
    "unknown user by SCRAM": (
        "SASL_PLAINTEXT",
        {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": BY_SCRAM.format("bob", "bad")},
        REFUSED.format("bob", "SCRAM-SHA-256", PROOF),
    ),
    "a mechanism that is not offered": (
        "SASL_PLAINTEXT",
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": BY_SCRAM.format("alice", "alice-secret")},
        "kt: PEER does not take alice (SASL SCRAM-SHA-512) (33); it has PLAIN, SCRAM-SHA-256: check FILE\n",
    ),
}


@pytest.mark.spec("SEC-15", "SEC-23", "SEC-35", "SEC-116")
@pytest.mark.parametrize("name", WRONG_CLIENTS)
def test_a_listener_that_does_not_take_us_is_told_of_in_one_line(
    name: str, certificates: Certificates, tmp_path: Path
) -> None:
    protocol, wrong, says = WRONG_CLIENTS[name]
    given = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": LOGIN,
        "ssl.truststore.location": str(certificates.trusted),
        **wrong,
    }
    if not given["security.protocol"].startswith("SASL"):
        del given["sasl.mechanism"], given["sasl.jaas.config"]
    with secured(protocol, certificates.good, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256") as server:

        def ask() -> tuple[str, int]:
            said = ask_broker(tmp_path, f"127.0.0.1:{server.endpoints[0].port}", given)
            return said.replace(str(tmp_path / "client.properties"), "FILE"), 0

        assert_says((says, 0), ask)


# --- a broker that stops in the middle ------------------------------------------------------------------------------


def server_hello(greeting: bytes, certificate: Certificate) -> bytes:
    """Return what a server answers to this beginning of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    to_server.write(greeting)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(to_server, to_client, server_side=True).do_handshake()
    return to_client.read()


@contextlib.contextmanager
def stopping(respond: Callable[[bytes], bytes], *, by_bytes: bool) -> Iterator[str]:
    """Give the address of who answers the first bytes with half of that, or with all byte by byte, then nothing more."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted, contextlib.suppress(OSError):
            answer = respond(accepted.recv(1 << 16))
            pieces = [answer[i : i + 1] for i in range(len(answer))] if by_bytes else [answer[: len(answer) // 2]]
            for piece in pieces:
                accepted.sendall(piece)
                if ended.wait(0.1 if by_bytes else 0):
                    return
            ended.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        thread.join()
        listener.close()


@pytest.mark.spec("SEC-41", "SEC-116")
@pytest.mark.parametrize("by_bytes", [False, True], ids=["half a handshake", "byte by byte"])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_broker_that_stops_in_the_middle_costs_the_limit_and_no_more(
    protocol: str, by_bytes: bool, certificates: Certificates, tmp_path: Path
) -> None:
    """Byte by byte each answer would take minutes: no byte prolongs the time."""

    def respond(first: bytes) -> bytes:
        if protocol == "SSL":
            return server_hello(first, certificates("good"))
        return struct.pack(">ii", 4000, 1) + bytes(4000)

    given = {
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": LOGIN,
        "ssl.truststore.location": str(certificates.trusted),
        "default.api.timeout.ms": "1000",
    }
    with stopping(respond, by_bytes=by_bytes) as address:
        said = ask_broker(tmp_path, address, given)
    assert said == "kt: no broker answers: PEER: no answer\n"
