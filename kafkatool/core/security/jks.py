"""Java's own key store format JKS, read without Java: certificates and keys under a password of their own.

Big-endian: magic, version, count of entries; each entry a kind, an alias, a time, and its content; at the end a SHA-1 over
the password in UTF-16BE, a fixed text, and all before it. A key is its PKCS8 form, XORed with a chain of SHA-1 that
begins with a random salt, and a SHA-1 to check it. Source: the OpenJDK's description of sun.security.provider.KeyStore.JKS.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_HASH_BYTES = 20


class WrongPasswordError(Exception):
    """The password is not the store's, or a byte of it is damaged: the two look alike."""


class ProtectedKey(NamedTuple):
    """A private key as it lies in the store, and its certificates, its own first."""

    protected: bytes
    chain: Sequence[bytes]


class JksStore(NamedTuple):
    """What a store holds; certificates are DER."""

    keys: Sequence[ProtectedKey]
    certificates: Sequence[bytes]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._position : self._position + size]
        if len(taken) < size:
            raise ValueError("cut off")
        self._position += size
        return taken

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size))


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Read a store; without a password its certificates are taken unchecked. ValueError: damaged; WrongPasswordError."""
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + data[:-_HASH_BYTES]).digest()
        if not hmac.compare_digest(digest, data[-_HASH_BYTES:]):
            raise WrongPasswordError
    reader = _Reader(data[:-_HASH_BYTES])
    reader.take(len(MAGIC))
    version = reader.number()
    if version not in (1, 2):
        raise ValueError(f"unknown version {version}")

    def certificate() -> bytes:
        if version == 2:
            reader.take(reader.number(2))  # X.509
        return reader.take(reader.number())

    keys: list[ProtectedKey] = []
    certificates: list[bytes] = []
    for _ in range(reader.number()):
        kind = reader.number()
        reader.take(reader.number(2))  # alias
        reader.take(8)  # made at
        if kind == _KEY:
            protected = reader.take(reader.number())
            keys.append(ProtectedKey(protected, [certificate() for _ in range(reader.number())]))
        elif kind == _CERTIFICATE:
            certificates.append(certificate())
        else:
            raise ValueError(f"unknown kind of entry {kind}")
    return JksStore(keys, certificates)


def open_key(key: ProtectedKey, password: str) -> bytes:
    """Return the key's PKCS8 form, DER. Raises WrongPasswordError, ValueError where its envelope is damaged."""
    envelope = _Der(key.protected).inside(0x30)
    envelope.inside(0x30)  # the algorithm: there is one
    sealed = envelope.inside(0x04).data
    salt, hidden, check = sealed[:_HASH_BYTES], sealed[_HASH_BYTES:-_HASH_BYTES], sealed[-_HASH_BYTES:]
    secret = _utf16(password)
    stream, link = bytearray(), salt
    while len(stream) < len(hidden):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    plain = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise WrongPasswordError
    return plain


class _Der:
    """As much of DER as an envelope needs: tag, length, content, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._reader = _Reader(data)

    def inside(self, tag: int) -> "_Der":
        """Take the next element and return its content."""
        if self._reader.number(1) != tag:
            raise ValueError("not DER")
        size = self._reader.number(1)
        if size & 0x80:
            size = self._reader.number(size & 0x7F)
        return _Der(self._reader.take(size))


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
