"""TLS and SASL listeners against raw sockets: table S byte by byte, handshakes of every kind."""

import contextlib
import random
import re
import ssl
import struct
import time
import warnings
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority, broker_names
from kafkatool.broker.network.request_channel import Request
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.security import scram
from tests.broker.network.raw_client import RawClient, connected, echo, frame, serving, wait_until
from tests.broker.network.secured import (
    ALICE,
    HANDSHAKE_0,
    HANDSHAKE_1,
    METADATA,
    PASSWORD,
    VERSIONS_0,
    authenticate,
    client,
    handshake,
    secured,
    tls_client,
)
from tests.waiting import awaited

OFFERED = "0000000000030005504c41494e000d534352414d2d5348412d353132000d534352414d2d5348412d323536"


# --- table S ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-62", "SEC-64", "SEC-72")
@pytest.mark.parametrize(
    ("version", "answer"),
    [
        (0, "000000020000000000000000"),
        (1, "0000000200000000000000000000000000000000"),
    ],
)
def test_plain_logs_in_as_on_real_kafka_and_only_then_a_request_is_served(version: int, answer: str) -> None:
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(str(request.connection.principal))
        echo(request)

    with secured("SASL_PLAINTEXT", handle=note) as server, client(server) as peer:
        assert len(peer.ask(VERSIONS_0)) > 100
        assert peer.ask(HANDSHAKE_1).hex() == "00000002" + OFFERED
        assert peer.ask(authenticate(ALICE, version)).hex() == answer
        assert not seen
        assert peer.ask(METADATA) == METADATA
        for late in (HANDSHAKE_1, authenticate(ALICE, version)):
            assert peer.ask(late) == late  # for the handlers, which refuse it: here, an echo
        with client(server) as bare:
            assert bare.ask(HANDSHAKE_0).hex() == "00000001" + OFFERED
            assert bare.ask(ALICE) == b""
            assert bare.ask(METADATA) == METADATA
    assert seen == ["User:alice"] * 4


@pytest.mark.spec("SEC-46")
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_each_protocol_is_served(protocol: str, authority: Authority) -> None:
    is_tls = protocol.endswith("SSL")
    with secured(protocol, authority if is_tls else None) as server:
        peer = tls_client(server, authority) if is_tls else RawClient(server.endpoints[0].port)
        if protocol.startswith("SASL"):
            peer.ask(HANDSHAKE_1)
            assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"
        assert peer.ask(METADATA) == METADATA
        peer.close()


@pytest.mark.spec("SEC-72")
def test_who_logs_in_with_a_certificate_beside_is_who_the_login_says(authority: Authority) -> None:
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(str(request.connection.principal))
        echo(request)

    bob = authority.certificate("bob", "CN=bob", PASSWORD)
    with secured("SASL_SSL", authority, note, listener_name_mine_ssl_client_auth="required") as server:
        peer = tls_client(server, authority, certificate=bob.certificate, key=bob.key)
        peer.ask(HANDSHAKE_1)
        assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"
        assert peer.ask(METADATA) == METADATA
        peer.close()
    assert seen == ["User:alice"]


OTHER_AUTHZID = "Authentication failed: Client requested an authorization id that is different from username"
SCRAM_REFUSED = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
)
REFUSALS = {
    "wrong password": (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
    "unknown user": (b"\0nobody\0x", "Authentication failed: Invalid username or password"),
    "not UTF-8": (b"\0\xff\xfe\0x", "Authentication failed: Invalid username or password"),
    "empty user": (b"\0\0alice-secret", "Authentication failed: username not specified"),
    "empty password": (b"\0alice\0", "Authentication failed: password not specified"),
    "two parts": (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
    "four parts": (b"\0alice\0alice-secret\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    "five parts": (b"\0alice\0alice-secret\0x\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    "empty": (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    "authzid of another": (b"admin\0alice\0alice-secret", OTHER_AUTHZID),
}


@pytest.mark.spec("SEC-64", "SEC-68", "SEC-69", "SEC-116")
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_token_of_plain_gets_kafkas_words_after_the_delay(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    token, text = REFUSALS[case]
    caplog.set_level("INFO")
    with secured("SASL_PLAINTEXT") as server:
        for version in (0, 1):
            with client(server) as peer:
                peer.ask(HANDSHAKE_1)
                began = time.monotonic()
                answer = peer.ask(authenticate(token, version))
                assert time.monotonic() - began >= 0.1
                expected = struct.pack(">ihh", 2, 58, len(text)) + text.encode() + bytes(4 + 8 * version)
                assert answer == expected
                assert peer.is_closed_by_server()
        with client(server) as bare:
            bare.ask(HANDSHAKE_0)
            bare.send(token)
            assert bare.is_closed_by_server()
    lines = [r for r in caplog.records if r.getMessage().startswith("listener MINE: 127.0.0.1:")]
    assert [(r.levelname, "could not log in by PLAIN as " in r.getMessage()) for r in lines] == [("INFO", True)] * 3
    assert "alice-secret" not in caplog.text


ALWAYS = "closed without an answer"
NEWER_VERSIONS = bytes.fromhex("001200630000000100026b7400")
WRONG_FRAMES: dict[str, tuple[list[bytes], bytes, str]] = {
    "request first": ([], METADATA, ALWAYS),
    "authenticate first": ([], authenticate(ALICE), ALWAYS),
    "no request": ([], bytes.fromhex("600606092a864886f712010202"), ALWAYS),
    "empty frame": ([], b"", ALWAYS),
    "request after versions": ([VERSIONS_0], METADATA, ALWAYS),
    "versions twice": ([VERSIONS_0], VERSIONS_0, ALWAYS),
    "request after code 35": ([NEWER_VERSIONS], METADATA, ALWAYS),
    "authenticate after code 35": ([NEWER_VERSIONS], authenticate(ALICE), ALWAYS),
    "handshake of no version": ([], bytes.fromhex("001100020000000100026b740005504c41494e"), ALWAYS),
    "authenticate of no version": ([HANDSHAKE_1], authenticate(ALICE, 3), ALWAYS),
    "bare token after handshake 1": ([HANDSHAKE_1], ALICE, ALWAYS),
    "authenticate after handshake 0": ([HANDSHAKE_0], authenticate(ALICE), ALWAYS),
    "produce after handshake": ([HANDSHAKE_1], bytes.fromhex("0000000700000002") + bytes(16), ALWAYS),
    "versions after handshake": ([HANDSHAKE_1], VERSIONS_0, "00000001002200000000"),
    "handshake after handshake": ([HANDSHAKE_1], HANDSHAKE_1, "00000002002200000000"),
    "GSSAPI": ([], handshake("GSSAPI"), "00000001" + "0021" + OFFERED[4:]),
    "small letters": ([], handshake("plain", 0), "00000001" + "0021" + OFFERED[4:]),
    "no mechanism": ([], handshake(""), "00000001" + "0021" + OFFERED[4:]),
}


@pytest.mark.spec("SEC-62", "SEC-63")
@pytest.mark.parametrize("case", WRONG_FRAMES)
def test_what_a_state_does_not_take_ends_the_connection_and_reaches_no_handler(case: str) -> None:
    before, wrong, answer = WRONG_FRAMES[case]
    served: list[Request] = []
    with secured("SASL_PLAINTEXT", handle=served.append) as server, client(server) as peer:
        for body in before:
            peer.ask(body)
        peer.send(wrong)
        if answer != ALWAYS:
            assert peer.receive().hex() == answer
        assert peer.is_closed_by_server()
    assert not served


@pytest.mark.spec("SEC-116")
def test_a_mechanism_that_is_not_offered_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with secured("SASL_PLAINTEXT") as server, client(server) as peer:
        assert peer.ask(handshake("GSSAPI"))[4:6] == (33).to_bytes(2)
        assert peer.is_closed_by_server()
    (line,) = [r for r in caplog.records if r.getMessage().startswith("listener MINE: ")]
    assert line.levelname == "INFO"
    told = re.sub(r":\d+ ", ":PORT ", line.getMessage())
    assert told.startswith("listener MINE: 127.0.0.1:PORT could not log in by ")
    assert told.endswith(": mechanism 'GSSAPI' is not enabled")


@pytest.mark.spec("SEC-62")
def test_versions_may_be_asked_again_and_again_while_the_version_is_not_known() -> None:
    nameless = bytes.fromhex("001200030000000100026b7400") + b"\x01\x01\x00"
    with secured("SASL_PLAINTEXT") as server, client(server) as peer:
        for _ in range(3):
            assert peer.ask(NEWER_VERSIONS).hex() == "0000000100230000000100120000" + "0003"
        assert peer.ask(nameless)[4:6].hex() == "002a"  # INVALID_REQUEST: as first still
        assert len(peer.ask(VERSIONS_0)) > 100
        peer.ask(HANDSHAKE_1)
        assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"


@pytest.mark.spec("SEC-63")
def test_before_the_login_a_frame_is_small_and_afterwards_as_ever() -> None:
    with secured("SASL_PLAINTEXT", sasl_server_max_receive_size="1000") as server:
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(b"\0alice\0" + b"x" * (1000 - 7 - 16)))  # refused, but read
        for length in (1001, 0x7FFFFFFF, -1):
            with client(server) as peer:
                peer.socket.sendall(struct.pack(">i", length))
                assert peer.is_closed_by_server()
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(ALICE))
            large = b"\0\x03" + bytes(100_000)
            assert peer.ask(large) == large


# --- SCRAM -----------------------------------------------------------------------------------------------------------


def scram_login(peer: RawClient, user: str, password: bytes) -> tuple[bytes, bytes]:
    """Log in; return the server's first message, and its last answer whole."""
    first = scram.client_first(user, scram.make_nonce())
    peer.ask(handshake("SCRAM-SHA-256"))
    answer = peer.ask(authenticate(scram.encode_client_first(first)))
    assert answer[4:6] == b"\0\0"
    server_first = answer[12:-8]
    final = scram.client_final(scram.SCRAM_SHA_256, password, first, server_first)
    last = peer.ask(authenticate(final.message, correlation_id=3))
    if last[4:6] == b"\0\0":
        scram.check_server_final(final, last[12:-8])
    return server_first, last


@pytest.mark.spec("SEC-65", "SEC-68", "SEC-116")
def test_scram_logs_in_and_an_unknown_user_fails_as_one_with_a_wrong_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    refused = struct.pack(">ihh", 3, 58, len(SCRAM_REFUSED)) + SCRAM_REFUSED.encode() + bytes(12)
    with secured("SASL_PLAINTEXT") as server:
        with client(server) as peer:
            scram_login(peer, "alice", b"alice-secret")
            assert peer.ask(METADATA) == METADATA
        salts = []
        for user in ("alice", "nobody", "nobody", "somebody"):
            with client(server) as peer:
                first, last = scram_login(peer, user, b"wrong")
                assert last == refused
                assert peer.is_closed_by_server()
                salts.append(first.split(b",")[1:])
    assert salts[1] == salts[2] != salts[3]
    assert all(iterations == b"i=4096" for _, iterations in salts)
    lines = [r for r in caplog.records if "could not log in" in r.getMessage()]
    assert [(r.levelname, re.sub(r":\d+ ", ":PORT ", r.getMessage())) for r in lines] == [
        ("INFO", f"listener MINE: 127.0.0.1:PORT could not log in by SCRAM-SHA-256 as {who}: {why}")
        for who, why in (
            ("'alice'", "wrong proof"),
            *[("'nobody'", "unknown user")] * 2,
            ("'somebody'", "unknown user"),
        )
    ], "no part of a token"


@pytest.mark.spec("SEC-68", "SEC-69")
def test_who_does_not_log_in_writes_little_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    name = b"\x01" * 500_000
    with secured("SASL_PLAINTEXT") as server:
        for mechanism, tokens in (
            ("PLAIN", [b"\0" + name + b"\0x"]),
            ("SCRAM-SHA-256", [b"n,,n=" + name + b",r=x", b""]),
        ):
            with client(server) as peer:
                peer.ask(handshake(mechanism))
                for token in tokens:
                    assert peer.ask(authenticate(token))
                assert peer.is_closed_by_server()
    assert "could not log in by PLAIN" in caplog.text and "could not log in by SCRAM" in caplog.text
    assert len(caplog.text) < 10_000  # not a line of two megabytes for each try


@pytest.mark.spec("SEC-65", "SEC-68")
@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"n,,n=alice,r=x", ""),
        (b"n,,n=alice,r=x,tokenauth=true", SCRAM_REFUSED),
        (b"no message of SCRAM", SCRAM_REFUSED),
        (b"n,a=admin,n=alice,r=x", OTHER_AUTHZID),
    ],
    ids=["good", "delegation token", "bad message", "authzid of another"],
)
def test_a_first_message_of_scram_is_taken_or_refused_in_kafkas_words(first: bytes, told: str) -> None:
    with secured("SASL_PLAINTEXT") as server, client(server) as peer:
        peer.ask(handshake("SCRAM-SHA-256"))
        answer = peer.ask(authenticate(first))
        (code,) = struct.unpack_from(">h", answer, 4)
        assert code == (58 if told else 0)
        if told:
            assert answer[6:] == struct.pack(">h", len(told)) + told.encode() + bytes(12)


# --- new logins ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-70")
def test_a_login_that_holds_for_some_time_is_renewed_or_ends() -> None:
    with secured("SASL_PLAINTEXT", connections_max_reauth_ms="3600000") as server:
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            assert peer.ask(authenticate(ALICE))[-8:] == struct.pack(">q", 3_600_000)
            assert peer.ask(METADATA) == METADATA
            assert peer.ask(HANDSHAKE_1)[4:6] == b"\0\0"  # the first new login may come at once
            assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"
            assert peer.ask(METADATA) == METADATA
            assert peer.ask(authenticate(ALICE)) == authenticate(ALICE)  # for the handlers: here, an echo
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(ALICE))
            peer.ask(HANDSHAKE_1)
            text = b"Cannot change principals during re-authentication from User.alice: User.admin"
            assert text in peer.ask(authenticate(b"\0admin\0admin-secret"))
            assert peer.is_closed_by_server()
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(ALICE))
            peer.ask(handshake("SCRAM-SHA-256"))
            assert peer.ask(authenticate(b"n,,n=alice,r=x"))[4:6] == struct.pack(">h", 58)
            assert peer.is_closed_by_server()
        with client(server) as peer:
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(ALICE))
            peer.ask(HANDSHAKE_1)
            peer.send(METADATA)
            assert peer.is_closed_by_server()
    with secured("SASL_PLAINTEXT", connections_max_reauth_ms="1") as server, client(server) as peer:
        peer.ask(HANDSHAKE_1)
        peer.ask(authenticate(ALICE))
        time.sleep(0.01)  # the lifetime itself
        peer.send(METADATA)
        assert peer.is_closed_by_server()


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-70")
def test_a_request_that_waits_is_answered_before_a_new_login_begins() -> None:
    held: list[Request] = []
    with (
        secured("SASL_PLAINTEXT", None, held.append, connections_max_reauth_ms="3600000") as server,
        client(server) as peer,
    ):
        peer.ask(HANDSHAKE_1)
        peer.ask(authenticate(ALICE))
        peer.send(METADATA, HANDSHAKE_1)
        wait_until(lambda: bool(held))
        echo(held.pop())
        assert peer.receive() == METADATA
        assert peer.receive()[4:6] == b"\0\0"
        assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"


@pytest.mark.spec("SEC-54", "SEC-58", "SEC-59")
@pytest.mark.parametrize("requests", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_tls_carries_requests_cut_at_random_and_files_without_sendfile(
    requests: int, authority: Authority, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    path = tmp_path / "log"
    content = rng.randbytes(3_000_000)
    path.write_bytes(content)

    def answer(request: Request) -> None:
        if request.frame == b"\0\0file":
            whole = FileRegion(path.open("rb"), 5, len(content) - 5)
            request.connection.send([struct.pack(">i", len(content) - 1), b"head", whole])
        else:
            echo(request)

    with secured("SSL", authority, answer) as server:
        peer = tls_client(server, authority)
        assert peer.ask(b"\0\0file") == b"head" + content[5:]
        bodies = [rng.randbytes(rng.choice((0, 1, 5, 300, 5000, 40_000))) for _ in range(requests)]
        for batch in range(0, len(bodies), 5):  # few enough for all answers to wait in the sockets
            stream = b"".join(frame(b"\0\0" + body) for body in bodies[batch : batch + 5])
            while stream:
                cut = rng.choice((1, 2, 700, 5000, 16_384))
                peer.socket.sendall(stream[:cut])
                stream = stream[cut:]
            for body in bodies[batch : batch + 5]:
                assert peer.receive() == b"\0\0" + body
        peer.close()


@pytest.mark.spec("SEC-54")
@pytest.mark.parametrize("form", ["text", "file"])
def test_a_listener_serves_by_a_key_and_certificates_in_pem(form: str, authority: Authority, tmp_path: Path) -> None:
    broker = authority.certificate("broker", "CN=broker", PASSWORD, names=broker_names())
    key, chain, trusted = (f.read_text() for f in (broker.key, broker.certificate, authority.directory / "ca.pem"))
    (file := tmp_path / "store").write_text(key + chain)
    given = {"ssl_keystore_location": str(file)}
    if form == "text":
        given = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": chain}
    mine = authority.certificate("one-more", "CN=one-more", PASSWORD)
    given |= {"ssl_client_auth": "required", "ssl_truststore_certificates": trusted}
    with secured("SSL", None, echo, **given) as server:
        peer = tls_client(server, authority, certificate=mine.certificate, key=mine.key)
        assert peer.ask(b"\0\0x") == b"\0\0x"
        peer.close()


@pytest.mark.spec("SEC-46", "SEC-56", "SEC-72", "SEC-73")
def test_a_certificate_is_who_it_names_and_without_one_nobody(authority: Authority, tmp_path: Path) -> None:
    seen: list[str] = []

    def note(request: Request) -> None:
        seen.append(str(request.connection.principal))
        echo(request)

    mine = authority.certificate("alice", "CN=alice,OU=tests,O=kafkatool", PASSWORD)
    files = {"certificate": mine.certificate, "key": mine.key}
    with secured("SSL", authority, note) as server:
        peer = tls_client(server, authority, **files)  # nobody asks for it
        peer.ask(b"\0\0x")
        peer.close()
    bad = [
        Authority.open(tmp_path).certificate("stranger", "CN=stranger", PASSWORD),
        authority.certificate("late", "CN=late", PASSWORD, validity="expired"),
    ]
    with secured("SSL", authority, note, ssl_client_auth="requested") as server:
        for certificate in ({}, files):
            peer = tls_client(server, authority, **certificate)
            peer.ask(b"\0\0x")
            peer.close()
        for one in bad:
            with pytest.raises((OSError, EOFError)):
                tls_client(server, authority, certificate=one.certificate, key=one.key).ask(b"\0\0x")
    rules = {
        "ssl_principal_mapping_rules": "RULE:.*/of-other-listeners/",
        "listener_name_mine_ssl_principal_mapping_rules": r"RULE:^CN=([a-z]+),OU=tests.*$/$1-cert/U",
    }
    with secured("SSL", authority, note, ssl_client_auth="required", **rules) as server:
        peer = tls_client(server, authority, **files)
        peer.ask(b"\0\0x")
        peer.close()
        other = authority.certificate("other", "CN=other,OU=elsewhere", PASSWORD)
        for certificate in ({}, {"certificate": other.certificate, "key": other.key}):
            with pytest.raises((OSError, EOFError)):
                tls_client(server, authority, **certificate).ask(b"\0\0x")
    assert seen == ["User:ANONYMOUS"] * 2 + ["User:CN=alice,OU=tests,O=kafkatool", "User:ALICE-CERT"]


@pytest.mark.spec("SEC-60", "SEC-56", "SEC-116", "SEC-55")
def test_a_handshake_that_fails_is_one_clear_line(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stranger = Authority.open(tmp_path)
    bad = stranger.certificate("bad", "CN=bad", PASSWORD)
    expired = authority.certificate("expired", "CN=late", PASSWORD, validity="expired")
    with secured("SSL", authority, ssl_client_auth="required") as server:
        for certificate in (bad, expired, None):
            files = {} if certificate is None else {"certificate": certificate.certificate, "key": certificate.key}
            with pytest.raises((OSError, EOFError)):
                tls_client(server, authority, **files).ask(b"\0\0x")
        for plaintext in (frame(VERSIONS_0), b"GET / HTTP/1.0\r\n\r\n"):
            with client(server) as peer:
                peer.socket.sendall(plaintext)
                assert peer.is_closed_by_server()
        with client(server) as peer:
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname = False
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                old.minimum_version = ssl.TLSVersion.TLSv1
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            old.set_ciphers("ALL:@SECLEVEL=0")
            old.load_verify_locations(authority.directory / "ca.pem")
            with pytest.raises(OSError):
                old.wrap_socket(peer.socket, server_hostname="localhost")
        with client(server) as peer:
            of_rsa = ssl.create_default_context(cafile=authority.directory / "ca.pem")
            of_rsa.maximum_version = ssl.TLSVersion.TLSv1_2
            of_rsa.set_ciphers("AES128-SHA")  # the listener's key is of another kind
            with pytest.raises(ssl.SSLError, match="alert"):
                of_rsa.wrap_socket(peer.socket, server_hostname="localhost")
        wait_until(lambda: "no shared cipher" in caplog.text)  # the other listener's processor is another thread
        plain = RawClient(server.endpoints[1].port)
        plain.socket.sendall(bytes.fromhex("16030100c8010000c40303") + bytes(100))
        assert plain.is_closed_by_server()
        plain.close()
    lines = [r for r in caplog.records if r.getMessage().startswith("listener ")]
    assert {r.levelname for r in lines} == {"INFO"}
    failed = "listener MINE: 127.0.0.1:PORT the TLS handshake failed: "
    assert [re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", r.getMessage()) for r in lines] == [
        f"{failed}self-signed certificate in certificate chain",
        f"{failed}certificate has expired",
        f"{failed}peer did not return a certificate",
        *["listener MINE: 127.0.0.1:PORT does not speak TLS"] * 2,
        f"{failed}unsupported protocol",
        f"{failed}no shared cipher",
        "listener PLAINTEXT: 127.0.0.1:PORT speaks TLS to the plaintext listener PLAINTEXT",
    ]
    assert "Traceback" not in caplog.text


@pytest.mark.spec("SEC-69")
def test_what_is_closed_without_an_answer_is_closed_after_the_delay_too() -> None:
    with secured("SASL_PLAINTEXT", connection_failed_authentication_delay_ms="300") as server:
        codes = {handshake("GSSAPI"): 33, HANDSHAKE_1: 34}
        for before, wrong in (
            *(([], METADATA), ([HANDSHAKE_0], b"\0alice\0wrong")),
            *(([], handshake("GSSAPI")), ([HANDSHAKE_1], HANDSHAKE_1)),
        ):
            with client(server) as peer:
                for body in before:
                    peer.ask(body)
                began = time.monotonic()
                peer.send(wrong, METADATA)  # what comes behind it is not read
                if wrong in codes:
                    assert peer.receive()[4:6] == struct.pack(">h", codes[wrong])
                assert peer.is_closed_by_server()
                assert time.monotonic() - began >= 0.3


@pytest.mark.spec("SEC-69")
def test_after_a_failed_certificate_its_address_keeps_the_place_for_the_delay(authority: Authority) -> None:
    mine = authority.certificate("alice", "CN=alice,OU=tests,O=kafkatool", PASSWORD)
    limits = secured(
        "SSL",
        authority,
        max_connections_per_ip="1",
        connection_failed_authentication_delay_ms="500000",
        ssl_client_auth="required",
    )
    with limits as server:
        with pytest.raises((OSError, EOFError)):
            tls_client(server, authority).ask(b"\0\0x")
        with client(server) as again:
            assert again.is_closed_by_server()
        elsewhere = RawClient(server.endpoints[0].port, from_address="127.0.0.2")
        context = ssl.create_default_context(cafile=authority.directory / "ca.pem")
        context.load_cert_chain(mine.certificate, mine.key)
        elsewhere.socket = context.wrap_socket(elsewhere.socket, server_hostname="localhost")
        assert elsewhere.ask(b"\0\0x") == b"\0\0x"
        elsewhere.close()


@pytest.mark.spec("SEC-60")
def test_a_listener_says_little_of_who_does_not_get_in_however_many_processors_it_has(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkatool.broker.network")
    began, tries = time.monotonic(), 0
    with secured("SSL", authority, num_network_threads="3") as server:
        while tries < 60 or "more connections did not get in" not in caplog.text:
            with client(server) as peer:
                peer.socket.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert peer.is_closed_by_server()
            tries += 1
    seconds = int(time.monotonic() - began) + 1
    told = caplog.text.count("does not speak TLS")
    counted = sum(int(number) for number in re.findall(r"(\d+) more connections did not get in", caplog.text))
    assert told <= 10 * seconds
    assert tries - 60 < told + counted <= tries  # what came last may not be counted yet


@pytest.mark.spec("SEC-57", "SEC-97", "SEC-116")
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_who_stalls_before_the_login_disturbs_nobody_and_is_closed(
    protocol: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kafkatool.broker.network")
    began = time.monotonic()
    with secured(protocol, authority, kt_authentication_timeout_ms="300", num_network_threads="1") as server:

        def logged_in() -> RawClient | None:
            """None: this process was held up until it was too late."""
            try:
                made = tls_client(server, authority) if "SSL" in protocol else RawClient(server.endpoints[0].port)
                if protocol.startswith("SASL"):
                    made.ask(HANDSHAKE_1)
                    made.ask(authenticate(ALICE))
                made.ask(METADATA)
            except (EOFError, OSError):
                return None
            return made

        other = awaited(logged_in, "a login in time")
        stalled = [RawClient(server.endpoints[0].port) for _ in range(20)]
        for peer in stalled[:10]:
            peer.socket.sendall(b"\x16\x03\x01\x02\x00" if protocol != "SASL_PLAINTEXT" else b"\0\0\0")
        assert other.ask(METADATA) == METADATA, "by the same processor"
        other.close()
        for peer in stalled:
            assert peer.is_closed_by_server()
            peer.close()
        trickling = RawClient(server.endpoints[0].port)
        with contextlib.suppress(OSError):
            for byte in b"\x16\x03\x01\x02\x00" + bytes(500):
                trickling.socket.sendall(bytes([byte]) if protocol != "SASL_PLAINTEXT" else b"\0")
                trickling.socket.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    if not trickling.socket.recv(1):
                        break
            else:
                pytest.fail("each byte prolonged it")
        trickling.close()
    minutes = int((time.monotonic() - began) / 60) + 1
    assert 1 <= caplog.text.count("did not log in within 300 ms") <= minutes  # one a minute for an address


@pytest.mark.spec("SEC-97")
def test_who_has_logged_in_in_time_may_be_silent(authority: Authority) -> None:
    with secured("SASL_SSL", authority, kt_authentication_timeout_ms="2000") as server:

        def logged_in() -> RawClient | None:
            """None: this process was held up until it was too late."""
            try:
                made = tls_client(server, authority)
                made.ask(HANDSHAKE_1)
                made.ask(authenticate(ALICE))
            except (EOFError, OSError):
                return None
            return made

        peer = awaited(logged_in, "a login in time")
        late = RawClient(server.endpoints[0].port)
        assert late.is_closed_by_server()  # so two seconds and more have passed since the first one came
        late.close()
        assert peer.ask(METADATA) == METADATA
        peer.close()


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("SEC-96")
def test_of_those_that_have_not_logged_in_the_oldest_of_an_address_goes() -> None:
    with secured("SASL_PLAINTEXT", kt_max_unauthenticated_connections="8") as server:
        first, second, third = (RawClient(server.endpoints[0].port) for _ in range(3))
        assert first.is_closed_by_server()  # a quarter of eight is two
        second.ask(HANDSHAKE_1)
        second.ask(authenticate(ALICE))  # counts no more
        fourth = RawClient(server.endpoints[0].port)
        for peer in (third, fourth):
            peer.ask(HANDSHAKE_1)
            peer.ask(authenticate(ALICE))
        assert second.ask(METADATA) == METADATA
        for peer in (first, second, third, fourth):
            peer.close()


@pytest.mark.spec("SEC-96")
def test_the_broker_as_a_whole_takes_no_more_than_so_many_that_have_not_logged_in() -> None:
    with secured("SASL_PLAINTEXT", kt_max_unauthenticated_connections="4") as server:
        port = server.endpoints[0].port
        first = [RawClient(port, from_address=f"127.0.0.{number}") for number in range(2, 6)]
        for peer in first:  # each is known to be in
            assert len(peer.ask(VERSIONS_0)) > 100
        stranger = RawClient(port, from_address="127.0.0.9")
        assert stranger.is_closed_by_server()  # it has none there that could go
        again = RawClient(port, from_address="127.0.0.3")
        assert first[1].is_closed_by_server()  # of an address that has one the oldest goes
        for peer in (first[0], first[2], first[3], again):
            assert peer.ask(HANDSHAKE_1)[4:6] == b"\0\0"
            assert peer.ask(authenticate(ALICE))[4:6] == b"\0\0"
        late = RawClient(port, from_address="127.0.0.9")
        assert len(late.ask(VERSIONS_0)) > 100  # who has logged in counts no more
        for peer in (*first, stranger, again, late):
            peer.close()


@pytest.mark.spec("SEC-95")
def test_a_flood_of_clients_keeps_no_broker_out_that_has_a_listener_of_its_own() -> None:
    listeners = {
        "listeners": "INNER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener_security_protocol_map": "INNER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter_broker_listener_name": "INNER",
    }
    with (
        serving(echo, (), max_connections="1", **listeners) as server,
        connected(server, 1) as client,
        connected(server, 1) as waiting,
    ):
        assert client.ask(b"\0\0x") == b"\0\0x"
        waiting.send(b"\0\0y")
        assert waiting.answers_nothing_for(0.3), "the broker's one place is taken"
        for _ in range(2):
            with connected(server, 0) as broker:
                assert broker.ask(b"\0\0x") == b"\0\0x"
        client.close()
        assert waiting.receive() == b"\0\0y"


@pytest.mark.spec("SEC-95")
def test_one_above_the_limit_of_its_listener_waits_until_another_closes() -> None:
    with secured("SASL_PLAINTEXT", listener_name_mine_max_connections="1") as server:
        first = RawClient(server.endpoints[0].port)
        first.ask(HANDSHAKE_1)
        second = RawClient(server.endpoints[0].port)
        second.send(HANDSHAKE_1)
        assert second.answers_nothing_for(0.5)
        other = RawClient(server.endpoints[1].port)  # another listener's have places of their own
        assert other.ask(b"\0\0x") == b"\0\0x"
        first.close()
        assert second.receive()[4:6] == b"\0\0"
        second.close()
        other.close()
