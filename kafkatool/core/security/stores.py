"""Keys and certificates in the formats that Kafka's clients and brokers are given: PEM, PKCS12, JKS, JCEKS.

The content decides the format, not a name or a type: Java writes PKCS12 into files that are called .jks (SEC-8). What is
read is PEM, as ``ssl`` takes it; ``cryptography`` is imported where a store needs it. Every error is a ConfigError that
names the file and the property it came by.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkatool.core.errors import ConfigError
from kafkatool.core.security import jks
from kafkatool.core.security.secret import Secret

if TYPE_CHECKING:
    from cryptography import x509

JCEKS_MAGIC: Final = b"\xce\xce\xce\xce"
_PEM: Final = b"-----BEGIN"
_PEM_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PEM_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----", re.DOTALL)
_WRONG = "wrong password, or damaged"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificates, its own first; both PEM."""

    key: bytes = field(repr=False)
    chain: bytes


def format_of(content: bytes) -> str:
    """Name the format, in the words of ``*.type``; PKCS12 is what is none of the others (SEC-8)."""
    if _is_pem(content):
        return "PEM"
    return {jks.MAGIC: "JKS", JCEKS_MAGIC: "JCEKS"}.get(content[:4], "PKCS12")


def read_key_pair(content: bytes, password: Secret | None, key_password: Secret | None, where: str) -> KeyPair:
    """Read the one key of a store and its chain. ``key_password``: the key's own, where it has one. Raises ConfigError."""
    if _is_pem(content):
        return read_pem_key_pair(content, content, key_password or password, where)
    if content.startswith(jks.MAGIC):
        return _jks_key_pair(content, password, key_password, where)
    if content.startswith(JCEKS_MAGIC):
        return _jceks_key_pair(content, password, key_password, where)
    return _pkcs12_key_pair(content, password, key_password, where)


def read_certificates(content: bytes, password: Secret | None, where: str) -> bytes:
    """Read the certificates of a truststore. Raises ConfigError."""
    if _is_pem(content):
        found = _PEM_CERTIFICATE.findall(content)
        certificates = b"\n".join(found) + b"\n" if found else b""
    elif content.startswith(jks.MAGIC):
        certificates = _as_pem("CERTIFICATE", _read_jks(content, password, where).certificates)
    elif content.startswith(JCEKS_MAGIC):
        certificates = _as_pem("CERTIFICATE", [c.cert for c in _read_jceks(content, password, where).certs.values()])
    else:
        from cryptography.hazmat.primitives.serialization import Encoding

        _, others = _read_pkcs12(content, password, where)
        certificates = b"".join(c.certificate.public_bytes(Encoding.PEM) for c in others)
    if not certificates:
        raise ConfigError(f"{where}: no certificate in it")
    return certificates


# --- PEM -------------------------------------------------------------------------------------------------------------


def read_pem_key_pair(key: bytes, chain: bytes, password: Secret | None, where: str) -> KeyPair:
    """Read a key and its chain, PEM both, from one text or from two. Raises ConfigError."""
    keys = [match[0] for match in _PEM_KEY.finditer(key)]
    certificates = _PEM_CERTIFICATE.findall(chain)
    _check_one(len(keys), len(certificates), where)
    return KeyPair(_decrypted(keys[0], password, where), b"\n".join(certificates) + b"\n")


def _decrypted(key: bytes, password: Secret | None, where: str) -> bytes:
    """Return the key without encryption; a password for one that has none is no error."""
    if b"ENCRYPTED" not in key:
        return key + b"\n"
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        opened = load_pem_private_key(key, _password_bytes(password))
    except (ValueError, TypeError) as e:
        raise ConfigError(f"{where}: {'the key is encrypted: give its password' if not password else _WRONG}") from e
    return _key_as_pem(opened)


# --- PKCS12 ----------------------------------------------------------------------------------------------------------


def _pkcs12_key_pair(content: bytes, password: Secret | None, key_password: Secret | None, where: str) -> KeyPair:
    from cryptography.hazmat.primitives.serialization import Encoding

    if key_password is not None and password is not None and key_password != password:
        raise ConfigError(f"{where}: in PKCS12 the key has the store's password, ssl.key.password is another")
    store, others = _read_pkcs12(content, password or key_password, where)
    own = store.cert.certificate if store.cert else None
    _check_one(int(store.key is not None), int(own is not None), where)
    assert own is not None
    chain = list(_chain(own, [other.certificate for other in others]))
    if any(other.friendly_name and other.certificate not in chain for other in others):
        raise ConfigError(
            f"{where}: more than one key in it"
        )  # the others are dropped silently, but not their certificates
    return KeyPair(_key_as_pem(store.key), b"".join(c.public_bytes(Encoding.PEM) for c in chain))


def _read_pkcs12(content: bytes, password: Secret | None, where: str) -> tuple[Any, Sequence[Any]]:
    """Return the store and its certificates besides the key's."""
    from cryptography.hazmat.primitives.serialization import pkcs12

    if not _is_whole_der(content):
        raise ConfigError(f"{where}: neither PEM nor PKCS12 nor JKS, or damaged")
    for attempt in (_password_bytes(password), None):  # without encryption and MAC any password is as good as none
        try:
            store = pkcs12.load_pkcs12(content, attempt)
        except ValueError as e:
            error = e
            continue
        return store, store.additional_certs
    raise ConfigError(f"{where}: {_WRONG}{'' if password else ' (no password was given)'}") from error


def _chain(own: "x509.Certificate", others: Sequence["x509.Certificate"]) -> "Iterator[x509.Certificate]":
    """Yield the certificate, who issued it, and so on, as far as they are there."""
    left = [other for other in others if other != own]
    while True:
        yield own
        if own.subject == own.issuer or (issuer := next((c for c in left if _is_issued_by(own, c)), None)) is None:
            return
        left.remove(issuer)
        own = issuer


def _is_issued_by(certificate: "x509.Certificate", issuer: "x509.Certificate") -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001  # another name, another key, a signature of a kind not known: none of it is ours
        return False
    return True


def _is_whole_der(content: bytes) -> bool:
    """Tell whether the outer element is there to its end."""
    if len(content) < 2 or content[0] != 0x30:
        return False
    size, start = content[1], 2
    if size == 0x80:
        return True  # its end is told by its content
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(content[2:start])
    return start + size <= len(content)


# --- JKS and JCEKS ---------------------------------------------------------------------------------------------------


def _read_jks(content: bytes, password: Secret | None, where: str) -> jks.JksStore:
    try:
        return jks.read_jks(content, password.reveal() if password else None)
    except jks.WrongPasswordError as e:
        raise ConfigError(f"{where}: {_WRONG}") from e
    except ValueError as e:
        raise ConfigError(f"{where}: damaged JKS store: {e}") from e


def _jks_key_pair(content: bytes, password: Secret | None, key_password: Secret | None, where: str) -> KeyPair:
    store = _read_jks(content, password, where)
    _check_one(len(store.keys), sum(len(key.chain) for key in store.keys), where)
    secret = key_password or password
    if secret is None:
        raise ConfigError(f"{where}: the key needs a password")
    try:
        key = jks.open_key(store.keys[0], secret.reveal())
    except jks.WrongPasswordError as e:
        raise ConfigError(f"{where}: wrong password of the key, or damaged") from e
    except ValueError as e:
        raise ConfigError(f"{where}: damaged JKS store: {e}") from e
    return KeyPair(_as_pem("PRIVATE KEY", [key]), _as_pem("CERTIFICATE", store.keys[0].chain))


def _read_jceks(content: bytes, password: Secret | None, where: str) -> Any:
    try:
        import jks as pyjks  # the extra's, of the same name
    except ImportError as e:
        raise ConfigError(
            f"{where}: a JCEKS store needs the extra: pip install 'kafka-kt[jks]', or "
            "keytool -importkeystore -deststoretype PKCS12"
        ) from e
    try:
        return pyjks.KeyStore.loads(content, password.reveal() if password else None)
    except Exception as e:  # pyjks has errors of many kinds for what a damaged file is
        raise ConfigError(f"{where}: {_WRONG}") from e


def _jceks_key_pair(content: bytes, password: Secret | None, key_password: Secret | None, where: str) -> KeyPair:
    keys = list(_read_jceks(content, password, where).private_keys.values())
    _check_one(len(keys), sum(len(key.cert_chain) for key in keys), where)
    secret = key_password or password
    try:
        if not keys[0].is_decrypted():
            keys[0].decrypt(secret.reveal() if secret else "")
    except Exception as e:
        raise ConfigError(f"{where}: wrong password of the key, or damaged") from e
    chain = [der for _, der in keys[0].cert_chain]
    return KeyPair(_as_pem("PRIVATE KEY", [keys[0].pkey_pkcs8]), _as_pem("CERTIFICATE", chain))


# --- all -------------------------------------------------------------------------------------------------------------


def _is_pem(content: bytes) -> bool:
    return _PEM in content[:4096]


def _check_one(keys: int, certificates: int, where: str) -> None:
    if keys == 0:
        raise ConfigError(f"{where}: no private key in it")
    if keys > 1:
        raise ConfigError(f"{where}: more than one key in it")
    if certificates == 0:
        raise ConfigError(f"{where}: no certificate in it")


def _password_bytes(password: Secret | None) -> bytes | None:
    return password.reveal().encode() if password else None


def _as_pem(kind: str, ders: Iterable[bytes]) -> bytes:
    blocks = []
    for der in ders:
        text = b64encode(der).decode()
        lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
        blocks.append(f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n")
    return "".join(blocks).encode()


def _key_as_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def subject_of(chain: bytes) -> str:
    """Return whose the first certificate of a PEM chain is, as Java writes it (RFC 2253): ``CN=kt,O=x``."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(chain).subject.rfc4514_string()
