"""SCRAM-SHA-256 and -512: the messages of both sides as pure functions (RFC 5802, RFC 7677, KIP-84).

A login is four messages. The client makes the first with ``client_first`` and, from the server's answer, the third with
``client_final``, which also says what signature proves that the server knows the credential. The server reads the first
with ``read_client_first``, answers with ``server_first``, and holds the third against a ``Credential`` with ``verify``,
which returns the fourth.

Without channel binding, and without SASLprep, as Kafka: names and passwords are their UTF-8 bytes. No message or key of
the other side is ever part of an error's text.
"""

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from kafkatool.core.errors import KafkatoolError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS_OF_SERVER: Final = 1_000_000
"""What a client computes at most: a hostile server could burn hours (SEC-36)."""
_NONCE_BYTES = 24
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ATTRIBUTE = re.compile(r"[A-Za-z]=[^\0]*", re.DOTALL)
_PRINTABLE = re.compile(r"[!-+\--~]+")  # a nonce: printable ASCII but the comma


class ScramError(KafkatoolError):
    """A message that cannot be read, or a proof that does not hold."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a server keeps of a password in one mechanism. It lets nobody log in as a client, but pose as the server."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read ``salt=,stored_key=,server_key=,iterations=`` of ``/config/users`` (SEC-66). Raises ScramError."""
        pairs = [part.partition("=") for part in text.split(",")]
        parts = {name: value for name, _, value in pairs}
        if len(pairs) != 4 or parts.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ScramError("not a SCRAM credential: expected salt, stored_key, server_key, iterations")
        return cls(
            _unbase64(parts["salt"], "salt"),
            _unbase64(parts["stored_key"], "stored_key"),
            _unbase64(parts["server_key"], "server_key"),
            _number(parts["iterations"]),
        )

    def encode(self) -> str:
        """Write it as Kafka does, in its order."""
        keys = f"stored_key={_base64(self.stored_key)},server_key={_base64(self.server_key)}"
        return f"salt={_base64(self.salt)},{keys},iterations={self.iterations}"


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of the two: a name on the wire, and a hash."""

    name: str
    digest: str

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Return what the password comes to, by PBKDF2: as good as the password itself."""
        return hashlib.pbkdf2_hmac(self.digest, password, salt, iterations)

    def credential(self, password: bytes, *, salt: bytes, iterations: int) -> Credential:
        """Make the credential of a password."""
        return self.credential_of_salted(self.salted_password(password, salt, iterations), salt, iterations)

    def credential_of_salted(self, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
        """Make the credential of a password that was salted by somebody else (KIP-554)."""
        stored_key = self.hash(self.hmac(salted_password, b"Client Key"))
        return Credential(salt, stored_key, self.hmac(salted_password, b"Server Key"), iterations)

    def hash(self, data: bytes) -> bytes:
        """Return H(data)."""
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return HMAC(key, data)."""
        return hmac.digest(key, data, self.digest)


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", "sha256")
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", "sha512")
MECHANISMS: Final[Mapping[str, ScramMechanism]] = {m.name: m for m in (SCRAM_SHA_256, SCRAM_SHA_512)}


class ClientFirst(NamedTuple):
    """The first message."""

    gs2_header: str
    authorization_id: str
    user: str
    nonce: str
    extensions: Mapping[str, str]
    bare: str
    """The message without the header: a part of what is signed."""


class ClientFinal(NamedTuple):
    """The third message, and how to tell that the server is no impostor."""

    message: bytes
    server_signature: bytes


def make_salt(random: bytes = b"") -> bytes:
    """Return a salt as Kafka makes them, 130 bits as text of base 36; ``random``: 17 bytes to make it of.

    All that make credentials, and the stand-ins for unknown users, use this: by another form users could be told.
    """
    number, digits = int.from_bytes(random or secrets.token_bytes(17), "big") >> 6, ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits.encode()


def make_nonce() -> str:
    """Return random printable text of 24 bytes (SEC-36, SEC-65)."""
    return _base64(secrets.token_bytes(_NONCE_BYTES))


# --- the client ------------------------------------------------------------------------------------------------------


def client_first(user: str, nonce: str) -> ClientFirst:
    """Make the first message; its bytes are ``encode_client_first``."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    return ClientFirst("n,,", "", user, nonce, {}, f"n={name},r={nonce}")


def encode_client_first(first: ClientFirst) -> bytes:
    """Return the first message as it is sent."""
    return (first.gs2_header + first.bare).encode()


def client_final(mechanism: ScramMechanism, password: bytes, first: ClientFirst, server: bytes) -> ClientFinal:
    """Answer the server's first message. Raises ScramError; also on iterations that no honest server asks for."""
    text = _text(server)
    attributes = _attributes(text, "rsi")
    nonce, salt, iterations = attributes[0], _unbase64(attributes[1], "salt"), _number(attributes[2])
    if not nonce.startswith(first.nonce) or len(nonce) == len(first.nonce):
        raise ScramError("the server's nonce does not continue ours")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS_OF_SERVER:
        allowed = f"{MIN_ITERATIONS} to {MAX_ITERATIONS_OF_SERVER}"
        raise ScramError(f"the server asks for {iterations} iterations, allowed are {allowed}")
    salted = mechanism.salted_password(password, salt, iterations)
    client_key = mechanism.hmac(salted, b"Client Key")
    without_proof = f"c={_base64(first.gs2_header.encode())},r={nonce}"
    signed = f"{first.bare},{text},{without_proof}".encode()
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = _xor(client_key, signature)
    return ClientFinal(
        f"{without_proof},p={_base64(proof)}".encode(),
        mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed),
    )


def check_server_final(final: ClientFinal, server: bytes) -> None:
    """Hold the server's last message against the signature awaited. Raises ScramError: it may not know the password."""
    text = _text(server)
    if text.startswith("e="):
        raise ScramError("the server refused the login")
    signature = _unbase64(_attributes(text, "v")[0], "signature")
    if not hmac.compare_digest(signature, final.server_signature):
        raise ScramError("the server's signature is wrong: it does not know the password")


# --- the server ------------------------------------------------------------------------------------------------------


def read_client_first(data: bytes) -> ClientFirst:
    """Read a first message. Raises ScramError: also where channel binding is asked for, or something mandatory."""
    text = _text(data)
    flag, _, rest = text.partition(",")
    authorization, _, bare = rest.partition(",")
    if flag not in ("n", "y"):
        raise ScramError("channel binding is not supported")
    if authorization and not authorization.startswith("a="):
        raise ScramError("no GS2 header")
    name, nonce, *extensions = _split(bare)
    if name[0] != "n" or nonce[0] != "r" or not _PRINTABLE.fullmatch(nonce[1]):
        raise ScramError("expected a name and a nonce")
    user = _unescape(name[1])
    if not user:
        raise ScramError("no user name")
    return ClientFirst(
        f"{flag},{authorization},",
        _unescape(authorization[2:]),
        user,
        nonce[1],
        dict(extensions),
        bare,
    )


def server_first(first: ClientFirst, server_nonce: str, credential: Credential) -> bytes:
    """Make the second message."""
    return f"r={first.nonce}{server_nonce},s={_base64(credential.salt)},i={credential.iterations}".encode()


def verify(mechanism: ScramMechanism, credential: Credential, first: ClientFirst, server: bytes, final: bytes) -> bytes:
    """Hold the client's final message against the credential; return the last message. Raises ScramError.

    ``server`` is the second message, as it was sent. The nonce must be the whole of it (CVE-2024-56128), and the header
    the one that was sent. librdkafka before 2.6.1 writes its own part once more before it: Kafka 3.9 takes that, too, and
    nothing is lost by it, as the server's part is there and the proof covers all.
    """
    text = _text(final)
    without_proof, found, proof_text = text.rpartition(",p=")
    if not found:
        raise ScramError("no proof")
    header, nonce, *_ = _split(without_proof)
    if header[0] != "c" or _unbase64(header[1], "GS2 header") != first.gs2_header.encode():
        raise ScramError("another GS2 header than at first")
    whole = server.partition(b",")[0].removeprefix(b"r=")
    told = nonce[1].encode()
    if nonce[0] != "r" or not (
        hmac.compare_digest(told, whole) or hmac.compare_digest(told, first.nonce.encode() + whole)
    ):
        raise ScramError("another nonce")
    proof = _unbase64(proof_text, "proof")
    signed = b",".join((first.bare.encode(), server, without_proof.encode()))
    signature = mechanism.hmac(credential.stored_key, signed)
    if len(proof) != len(signature):
        raise ScramError("a proof of another mechanism")
    if not hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key):
        raise ScramError("wrong proof")
    return b"v=" + b64encode(mechanism.hmac(credential.server_key, signed))


# --- texts -----------------------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("not UTF-8") from None


def _split(text: str) -> list[tuple[str, str]]:
    """Split ``a=x,b=y``; at least two, as every message has."""
    parts = text.split(",")
    if len(parts) < 2 or not _ATTRIBUTE.fullmatch(parts[0]) or not _ATTRIBUTE.fullmatch(parts[1]):
        raise ScramError("expected attributes")
    pairs = [part.partition("=") for part in parts]
    if any(not name or not found for name, found, _ in pairs):
        raise ScramError("expected attributes")
    return [(name, value) for name, _, value in pairs]


def _attributes(text: str, names: str) -> list[str]:
    """Return the values of a message that begins with these attributes; what follows is an extension."""
    parts = text.split(",")
    if len(parts) < len(names) or any(part[:2] != f"{name}=" for name, part in zip(names, parts, strict=False)):
        raise ScramError(f"expected the attributes {', '.join(names)}")
    return [part[2:] for part in parts[: len(names)]]


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ScramError("a name with a bare =")
    return name.replace("=2C", ",").replace("=3D", "=")


def _number(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text):
        raise ScramError("iterations are no number")
    return int(text)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _unbase64(text: str, what: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError(f"{what}: not base64") from None


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
