"""TLS as Kafka's properties tell it, for clients and for listeners: ``TlsSettings`` in, an ``ssl.SSLContext`` out.

    context = client_context(read_tls_settings(properties, "client.properties"))

A private key never lies decrypted in a file system: ``ssl`` takes keys by path, so it gets a file in memory (SEC-10). The
errors are ConfigErrors that name property and file.
"""

import logging
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from kafkatool.core.errors import ConfigError
from kafkatool.core.security.credential_files import read_credential_bytes
from kafkatool.core.security.secret import Secret
from kafkatool.core.security.stores import KeyPair, format_of, read_certificates, read_key_pair, read_pem_key_pair

log = logging.getLogger(__name__)

ClientAuth = Literal["none", "requested", "required"]

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD: Final = ("SSLv2Hello", "SSLv2", "SSLv3", "TLSv1", "TLSv1.1")
_ANY: Final = ("TLS", "SSL")  # of ``protocol``: whatever ``enabled.protocols`` has
_UNREAD: Final = ("BKS", "UBER", "WINDOWS-ROOT", "WINDOWS-MY", "PKCS11", "KEYCHAINSTORE")
_VERIFY: Final[Mapping[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_CIPHER = re.compile(r"TLS_(?:(?P<exchange>\w+?)_)?WITH_(?P<bulk>\w+)")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What the properties say, with their stores read. ``authorities`` PEM, None: the system's (SEC-14)."""

    key_pair: KeyPair | None = None
    authorities: bytes | None = field(default=None, repr=False)
    versions: tuple[str, ...] = tuple(PROTOCOLS)
    ciphers: str | None = None
    checks_host_name: bool = True
    notes: tuple[str, ...] = ()
    """What is to be told of them as a warning."""
    broken: tuple[str, ...] = ()
    """The versions of TLS that were asked for and are never offered."""


def read_tls_settings(properties: Mapping[str, str], where: str, *, prefix: str = "ssl.") -> TlsSettings:
    """Read ``ssl.*`` and the stores they name. ``where`` names the properties in errors. Raises ConfigError."""
    given = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    said = f"{where}: {prefix}"
    versions, broken = _versions(given, said)
    notes = [f"{said}enabled.protocols: {', '.join(broken)} is broken and not offered"] if broken else []
    ciphers, cipher_notes = _ciphers(given.get("cipher.suites", ""), f"{said}cipher.suites")
    algorithm = given.get("endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("", "https"):
        raise ConfigError(
            f"{said}endpoint.identification.algorithm={algorithm}: there are https, and nothing for no check"
        )
    if not algorithm:
        notes.append(
            f"{said}endpoint.identification.algorithm is empty: host names are not checked against certificates"
        )
    return TlsSettings(
        _key_pair(given, said, notes),
        _authorities(given, said),
        versions,
        ciphers,
        bool(algorithm),
        (*notes, *cipher_notes),
        broken,
    )


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a client: the server's certificate is checked, and its name unless told otherwise (SEC-13)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host_name
    if settings.authorities is None:
        context.set_default_verify_paths()
    return _completed(context, settings)


def server_context(settings: TlsSettings, *, client_auth: ClientAuth = "none") -> ssl.SSLContext:
    """Make the context of a listener. Raises ConfigError where it has no key, or nothing to hold certificates against."""
    if settings.key_pair is None:
        raise ConfigError("a TLS listener needs ssl.keystore.location, or ssl.keystore.key and .certificate.chain")
    if client_auth == "required" and settings.authorities is None:
        raise ConfigError("ssl.client.auth=required needs ssl.truststore.location or ssl.truststore.certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION
    return _completed(context, settings)


def _completed(context: ssl.SSLContext, settings: TlsSettings) -> ssl.SSLContext:
    context.minimum_version = PROTOCOLS[settings.versions[0]]
    context.maximum_version = PROTOCOLS[settings.versions[-1]]
    context.options |= ssl.OP_NO_COMPRESSION
    if settings.ciphers is not None:
        context.set_ciphers(settings.ciphers)
    if settings.authorities is not None:
        try:
            context.load_verify_locations(cadata=settings.authorities.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as e:
            raise ConfigError(f"a certificate of the truststore cannot be read: {e}") from e
    if settings.key_pair is not None:
        _load_key(context, settings.key_pair)
    return context


def _load_key(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Give a context its key by a file that is in no file system."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pair.key + pair.chain)
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        except ssl.SSLError as e:
            raise ConfigError(f"the key of the keystore is not its certificate's, or damaged: {e.reason or e}") from e


# --- what the properties say -----------------------------------------------------------------------------------------


def is_true(text: str, said: str) -> bool:
    """Read true or false, as Kafka does. Raises ConfigError for another word: it must not mean that nothing is asked for."""
    word = text.strip().lower()
    if word not in ("true", "false", ""):
        raise ConfigError(f"{said}={text}: must be true or false")
    return word == "true"


def _key_pair(given: Mapping[str, str], said: str, notes: list[str]) -> KeyPair | None:
    """Read the key, if there is one; who else could read its store is added to the notes."""
    key_password = _secret(given, "key.password")
    key, chain = given.get("keystore.key"), given.get("keystore.certificate.chain")
    if key and chain:
        return read_pem_key_pair(key.encode(), chain.encode(), key_password, f"{said}keystore.key")
    if key or chain:
        raise ConfigError(f"{said}keystore.key and {said}keystore.certificate.chain belong together: one is missing")
    location = given.get("keystore.location")
    if not location:
        return None
    content, named, warned = _store(given, "keystore", location, said)
    notes += warned
    return read_key_pair(content, _secret(given, "keystore.password"), key_password, named)


def _authorities(given: Mapping[str, str], said: str) -> bytes | None:
    if certificates := given.get("truststore.certificates"):
        return read_certificates(certificates.encode(), None, f"{said}truststore.certificates")
    location = given.get("truststore.location")
    if not location:
        return None
    content, named, _ = _store(given, "truststore", location, said)
    return read_certificates(content, _secret(given, "truststore.password"), named)


def _store(given: Mapping[str, str], which: str, location: str, said: str) -> tuple[bytes, str, tuple[str, ...]]:
    """Return the content of a store, what it is called in errors, and what is to be warned of."""
    if (kind := given.get(f"{which}.type", "").upper()) in _UNREAD:
        raise ConfigError(f"{said}{which}.type={kind} is not read: PEM, PKCS12 and JKS are")
    named = f"{said}{which}.location={location}"
    try:
        if which == "keystore":
            content, notes = read_credential_bytes(Path(location))
        else:
            content, notes = Path(location).read_bytes(), ()  # certificates are for everybody to read
    except OSError as e:
        raise ConfigError(f"{named}: {e.strerror}") from e
    except ConfigError as e:
        raise ConfigError(f"{named}: {e}") from e
    if kind and kind != (found := format_of(content)):
        log.debug("%s is %s, though %s%s.type=%s", named, found, said, which, kind)
    return content, named, notes


def _secret(given: Mapping[str, str], key: str) -> Secret | None:
    return Secret(given[key]) if given.get(key) else None


def _versions(given: Mapping[str, str], said: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the versions to offer, oldest first, and those asked for that never are, as older than TLSv1.2 (SEC-12)."""
    text = given.get("enabled.protocols", "")
    asked = [name.strip() for name in text.split(",") if name.strip()] or list(PROTOCOLS)
    for name in asked:
        if name not in PROTOCOLS and name not in _OLD:
            raise ConfigError(f"{said}enabled.protocols: unknown protocol {name}; there are {', '.join(PROTOCOLS)}")
    versions = tuple(name for name in PROTOCOLS if name in asked)
    if not versions:
        raise ConfigError(f"{said}enabled.protocols={text}: all of them are broken; there are {', '.join(PROTOCOLS)}")
    protocol = given.get("protocol", "").strip() or "TLS"
    if protocol not in (*_ANY, *PROTOCOLS, *_OLD):
        raise ConfigError(f"{said}protocol={protocol}: unknown protocol; there are TLS, {', '.join(PROTOCOLS)}")
    if protocol in ("TLSv1.2", *_OLD) and "TLSv1.2" in versions:
        versions = ("TLSv1.2",)
    for check in ("crl.enable", "ocsp.enable"):
        if is_true(given.get(check, ""), f"{said}{check}"):
            raise ConfigError(f"{said}{check}=true is not supported: revoked certificates would be taken")
    return versions, tuple(name for name in asked if name in _OLD)


def _ciphers(text: str, said: str) -> tuple[str | None, list[str]]:
    """Return the suites in OpenSSL's words, which are asked for in IANA's; None: its own choice."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return None, []
    known = {cipher["name"]: cipher["protocol"] for cipher in _all_ciphers()}
    chosen, newest = [], []
    for name in names:
        match = _CIPHER.fullmatch(name)
        if match is None and known.get(name) == "TLSv1.3":
            newest.append(name)
        elif match is not None and (theirs := _openssl_name(match["exchange"] or "", match["bulk"])) in known:
            chosen.append(theirs)
        else:
            raise ConfigError(f"{said}: unknown cipher suite {name}")
    notes = [f"{said}: suites of TLSv1.3 cannot be chosen, {', '.join(newest)} is ignored"] if newest else []
    return ":".join(chosen) or None, notes


def _all_ciphers() -> list[dict[str, str]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    return [{"name": str(c["name"]), "protocol": str(c["protocol"])} for c in context.get_ciphers()]


def _openssl_name(exchange: str, bulk: str) -> str:
    """Return OpenSSL's name: ECDHE_RSA and AES_128_CBC_SHA -> ECDHE-RSA-AES128-SHA."""
    bulk = re.sub(r"^(AES|CAMELLIA|ARIA)_(\d+)_", r"\1\2_", bulk).replace("_CBC", "").replace("CCM_8", "CCM8")
    if "CHACHA20" in bulk:
        bulk = "CHACHA20_POLY1305"
    if bulk.endswith("_CCM_SHA256"):
        bulk = bulk.removesuffix("_SHA256")
    return "-".join(part.replace("_", "-") for part in (exchange if exchange != "RSA" else "", bulk) if part)
