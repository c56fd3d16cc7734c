"""Why a handshake came to nothing, in words, whatever this Python and OpenSSL make of it."""

import socket
import ssl
import threading

import pytest

from kafkatool.core.errors import TlsError
from kafkatool.core.security.handshake import shake_hands


@pytest.mark.spec("SEC-15")
@pytest.mark.parametrize("reads_first", [True, False])
def test_who_closes_instead_of_an_answer_speaks_no_tls(reads_first: bool) -> None:
    """Python 3.11.2 takes it for an orderly end, later ones for a broken one; unread bytes make it a reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        greeted = threading.Event()

        def close() -> None:
            accepted, _ = listening.accept()
            if reads_first:
                accepted.recv(65536)
            else:
                greeted.wait(60)
            accepted.close()

        server = threading.Thread(target=close)
        server.start()
        raw = socket.create_connection(listening.getsockname(), timeout=60)
        raw.settimeout(60)
        greeted.set()
        with raw, pytest.raises(TlsError, match=r"^h:1 does not speak TLS: is it the plaintext port\?$"):
            shake_hands(ssl.create_default_context(), raw, "localhost", "h:1")
        server.join()
