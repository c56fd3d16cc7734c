"""A peer that speaks TLS and nothing else: it shakes hands, listens to the first bytes, and closes."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from kafkatool.broker.embedded.secured.certificates import Certificate

_PATIENCE_S = 200.0


class TlsPeer:
    """``greetings`` counts the connections on which something came: attempts at a handshake, no mere looks at the port."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.greetings = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.settimeout(_PATIENCE_S)
            with accepted, contextlib.suppress(OSError):
                self._serve(accepted)

    def _serve(self, accepted: socket.socket) -> None:
        if not accepted.recv(1, socket.MSG_PEEK):
            return
        self.greetings += 1
        with self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as tls:
            try:
                tls.do_handshake()
                tls.recv(1 << 16)
            finally:  # until the other side has gone: its unread bytes would have the alert taken back
                socket.socket.shutdown(tls, socket.SHUT_WR)
                while socket.socket.recv(tls, 1 << 16):
                    pass


@contextlib.contextmanager
def tls_peer(
    certificate: Certificate, *, trusts: Path | None = None, adjust: Callable[[ssl.SSLContext], None] = lambda _: None
) -> Iterator[TlsPeer]:
    """``trusts``: whose certificates clients must have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if trusts is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusts)
    adjust(context)
    peer = TlsPeer(context)
    try:
        yield peer
    finally:
        peer.close()
