"""An authority of a test cluster's own, and the certificates it gives: for brokers and users (SEC-105, 109)."""

import datetime
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from kafkatool.core.security.credential_files import write_credential_file

_AUTHORITY_DAYS: Final = 3650
_LEAF_DAYS: Final = 397
_RENEWED_WITH_DAYS_LEFT: Final = 7
Validity = Literal["now", "expired", "not yet"]
_BROKER_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate with its key: PEM files, and the same as PKCS12."""

    certificate: Path
    key: Path
    keystore: Path


class Authority:
    """The authority in a directory; its key stays there, and nothing else trusts it."""

    def __init__(self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.directory = directory
        self._certificate = certificate
        self._key = key

    @classmethod
    def open(cls, directory: Path, name: str = "ca") -> Self:
        """Take the one that is there, or make it: ``<name>.pem`` and ``<name>.key``."""
        pem, key_file = directory / f"{name}.pem", directory / f"{name}.key"
        if pem.exists() and key_file.exists():
            certificate = x509.load_pem_x509_certificate(pem.read_bytes())
            key = load_pem_private_key(key_file.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            if not _is_due(certificate):
                return cls(directory, certificate, key)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name.from_rfc4514_string(f"CN=kafkatool test {name}")
        certificate = (
            _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_credential_file(key_file, _key_bytes(key))
        write_credential_file(pem, certificate.public_bytes(Encoding.PEM))
        return cls(directory, certificate, key)

    def certificate(
        self,
        name: str,
        subject: str,
        password: str,
        *,
        names: Iterable[str] = (),
        days: int = _LEAF_DAYS,
        validity: Validity = "now",
    ) -> Certificate:
        """Take the one that is there, or make it: ``<name>.pem``, ``.key`` and ``.p12``. ``names``: hosts and addresses."""
        made = Certificate(*(self.directory / f"{name}.{kind}" for kind in ("pem", "key", "p12")))
        there = made.certificate.exists() and made.key.exists() and made.keystore.exists()
        if there and validity == "now" and not _is_due(x509.load_pem_x509_certificate(made.certificate.read_bytes())):
            return made
        key = ec.generate_private_key(ec.SECP256R1())
        owner = x509.Name.from_rfc4514_string(subject)
        builder = _builder(owner, self._certificate.subject, key.public_key(), days, validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign=False), critical=True)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        if alternatives := [_alternative(n) for n in names]:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        leaf = builder.sign(self._key, hashes.SHA256())
        write_credential_file(made.key, _key_bytes(key))
        chain = leaf.public_bytes(Encoding.PEM) + self._certificate.public_bytes(Encoding.PEM)
        write_credential_file(made.certificate, chain)
        write_credential_file(
            made.keystore,
            pkcs12.serialize_key_and_certificates(
                name.encode(), key, leaf, [self._certificate], BestAvailableEncryption(password.encode())
            ),
        )
        return made

    def write_truststore(self, path: Path, password: str) -> None:
        """Write a PKCS12 truststore that Java reads as one."""
        trusted = [pkcs12.PKCS12Certificate(self._certificate, b"ca")]
        write_credential_file(
            path, pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))
        )


def broker_names(more: Sequence[str] = ()) -> list[str]:
    """Return what a broker's certificate is for, beside the names given."""
    return [*_BROKER_NAMES, *more]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    validity: Validity = "now",
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    start = now + datetime.timedelta(days={"now": -1, "expired": -days - 1, "not yet": 1}[validity])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _is_due(certificate: x509.Certificate) -> bool:
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left < datetime.timedelta(days=_RENEWED_WITH_DAYS_LEFT)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
