"""The client's side of a TLS handshake, and why one fails, in words that say what to do (SEC-15)."""

import contextlib
import socket
import ssl
from typing import Final

from kafkatool.core.errors import TlsError

_TLS_RECORDS: Final = (0x15, 0x16)  # alert, handshake
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "asks for a client certificate: give ssl.keystore.location",
    "BAD_CERTIFICATE": "asks for a client certificate, or takes not the one given: see ssl.keystore.location",
    "UNKNOWN_CA": "does not trust our certificate",
    "CERTIFICATE_UNKNOWN": "does not take our certificate",
    "CERTIFICATE_EXPIRED": "says that our certificate has expired",
    "PROTOCOL_VERSION": "has no TLS version in common: see ssl.enabled.protocols",
    "UNSUPPORTED_PROTOCOL": "has no TLS version in common: see ssl.enabled.protocols",
    "NO_CIPHERS_AVAILABLE": "has no cipher suite in common: see ssl.cipher.suites",
    "HANDSHAKE_FAILURE": "has no TLS version or cipher suite in common, or asks for a client certificate",
}
_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)
"""Instead of a handshake: which of them depends on the moment, Python and OpenSSL."""
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64  # OpenSSL's X509_V_ERR_…


def shake_hands(context: ssl.SSLContext, raw: socket.socket, host: str, peer: str) -> ssl.SSLSocket:
    """Make TLS of a connection, within its time-out. Raises TlsError, TimeoutError; the raw socket is used up."""
    try:
        return context.wrap_socket(raw, server_hostname=host)
    except TimeoutError:
        raise
    except OSError as e:
        raise TlsError(why_no_tls(e, peer, context, host)) from e


def why_no_tls(error: OSError, peer: str, context: ssl.SSLContext, host: str) -> str:
    """Say in one line why TLS with ``peer`` ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{peer}: {_certificate_text(error, peer, context, host)}"
    reason = getattr(error, "reason", None) or ""
    if "WRONG_VERSION_NUMBER" in reason or isinstance(error, _CLOSED):
        return f"{peer} does not speak TLS: is it the plaintext port?"
    return alert_text(error, peer) or f"{peer}: no TLS: {reason or error.strerror or error}"


def alert_text(error: OSError, peer: str) -> str | None:
    """Say what ``peer`` told by an alert of TLS; None: ``error`` is another.

    By TLSv1.3 a client takes the handshake for done before the server has judged its certificate: the alert comes with
    the first answer.
    """
    reason = getattr(error, "reason", None) or ""
    told = next((text for alert, text in _ALERTS.items() if alert in reason), None)
    return told and f"{peer} {told}"


def why_tls_ended(error: OSError, peer: str) -> str:
    """Say in one line why ``peer`` ended a connection right behind the handshake, where its alert may have been lost."""
    closed = f"{peer} closed the connection behind the TLS handshake: does it take our certificate, or ask for one?"
    return alert_text(error, peer) or closed


def _certificate_text(error: ssl.SSLCertVerificationError, peer: str, context: ssl.SSLContext, host: str) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "its certificate is not yet valid; is this machine's clock right?"
    if error.verify_code in (_OTHER_NAME, _OTHER_ADDRESS):
        names = ", ".join(_names(peer, context)) or "no name"
        return f"its certificate is not {host}'s: it has {names}"
    return f"its certificate is not trusted ({error.verify_message}): see ssl.truststore.location"


def _names(peer: str, context: ssl.SSLContext) -> list[str]:
    """Return the names in the certificate of the server, which is asked again: a failed handshake keeps none."""
    name, _, port = peer.rpartition(":")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE  # it is looked at, and nothing is sent
    bare.minimum_version, bare.maximum_version = context.minimum_version, context.maximum_version
    with contextlib.suppress(OSError, ValueError):
        from cryptography import x509

        with socket.create_connection((name.strip("[]"), int(port)), timeout=1) as raw, bare.wrap_socket(raw) as tls:
            certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return [certificate.subject.rfc4514_string()]
        return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return []


def check_trust(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Have a server and a client shake hands in memory. Raises TlsError, which says why they would not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for side in sides * 3:  # the most turns that a handshake takes
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as e:
        raise TlsError(e.verify_message) from e
    except ssl.SSLError as e:
        raise TlsError(e.reason or str(e)) from e


def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Tell whether a server answers the beginning of TLS in kind."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as raw:
            raw.sendall(outgoing.read())
            first = raw.recv(1)
    except OSError:
        return False
    return bool(first) and first[0] in _TLS_RECORDS
