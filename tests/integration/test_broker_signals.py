"""kt broker start and signals: one, or many at once, at any moment, end it cleanly."""

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority, Certificate, broker_names
from tests.waiting import eventually


@contextmanager
def broker(
    directory: Path, connect: str, said: bytes, listeners: str = "listeners=PLAINTEXT://127.0.0.1:0\n"
) -> Iterator[subprocess.Popen[bytes]]:
    """Give a broker process whose log has come to contain ``said``; it has to end with 0 in the block."""
    properties = directory / "server.properties"
    properties.write_text(f"broker.id=1\n{listeners}log.dirs={directory / 'data'}\nzookeeper.connect={connect}\n")
    output = directory / "server.log"
    with output.open("wb") as sink:
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config", str(properties)]
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        eventually(lambda: said in output.read_bytes(), "the broker to log it")
        yield process
        assert process.wait(120) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert b"Traceback" not in output.read_bytes()


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_burst_of_signals_ends_a_broker_like_one(tmp_path: Path, zk_connect: str) -> None:
    with broker(tmp_path, zk_connect, b" serves ") as process:
        for _ in range(50):
            process.send_signal(signal.SIGTERM)


@pytest.mark.spec("BRK-126", "BRK-128")
@pytest.mark.parametrize("said", [b" logs after ", b" is registered"])
def test_a_signal_while_it_starts_is_a_clean_stop(tmp_path: Path, zk_connect: str, said: bytes) -> None:
    with broker(tmp_path, zk_connect, said) as process:
        process.send_signal(signal.SIGTERM)


@pytest.mark.spec("SEC-61")
def test_a_hangup_has_a_broker_take_new_certificates_all_or_none(tmp_path: Path, zk_connect: str) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    mine, other = Authority.open(tmp_path / "mine"), Authority.open(tmp_path / "other")
    store, trusted = tmp_path / "store.p12", tmp_path / "trusted.pem"

    def install(certificate: Certificate, authority: Authority = mine) -> None:
        shutil.copy(certificate.keystore, store)
        shutil.copy(authority.directory / "ca.pem", trusted)

    first, second = (mine.certificate(n, f"CN={n}", "secret", names=broker_names()) for n in ("first", "second"))
    install(first)
    listeners = (
        "listeners=SSL://127.0.0.1:0\nsecurity.inter.broker.protocol=SSL\n"
        f"ssl.keystore.location={store}\nssl.keystore.password=secret\nssl.truststore.location={trusted}\n"
    )
    output = tmp_path / "server.log"
    with broker(tmp_path, zk_connect, b" serves ", listeners) as process:
        found = re.search(r"serves 127\.0\.0\.1:(\d+)", output.read_text())
        assert found is not None

        def connect(authority: Authority = mine) -> ssl.SSLSocket:
            context = ssl.create_default_context(cafile=authority.directory / "ca.pem")
            raw = socket.create_connection(("127.0.0.1", int(found[1])), timeout=60)
            return context.wrap_socket(raw, server_hostname="localhost")

        def told() -> str:
            with connect() as tls:
                certificate = tls.getpeercert()
                assert certificate is not None
                return str(certificate["subject"][0][0][1])

        def hang_up(said: str) -> None:
            times = output.read_text().count(said)
            process.send_signal(signal.SIGHUP)
            eventually(lambda: output.read_text().count(said) > times, f"the broker to say {said}")

        assert told() == "first"
        with connect() as before:
            store.write_bytes(b"no store")
            hang_up("stores stay as they were: listener SSL: ssl.keystore.location=")
            assert told() == "first"
            install(other.certificate("stranger", "CN=stranger", "secret", names=broker_names()))
            hang_up("brokers would not take its certificate: self-signed")
            install(mine.certificate("elsewhere", "CN=elsewhere", "secret", names=["elsewhere.example"]))
            hang_up("brokers would not take its certificate: IP address mismatch")
            assert told() == "first"
            install(second)
            hang_up("stores are read again")
            assert told() == "second"
            install(other.certificate("broker", "CN=broker", "secret", names=broker_names()), other)
            hang_up("stores are read again")
            with connect(other):
                pass
            versions = bytes.fromhex("0000000d001200000000000100036b7478")
            before.sendall(versions)  # who was connected stays
            assert before.recv(4)
        process.send_signal(signal.SIGTERM)
