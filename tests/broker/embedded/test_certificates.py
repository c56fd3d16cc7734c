"""The certificates of a secured embedded cluster: their kind, their life, and when they are made anew."""

import datetime
import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from kafkatool.broker.embedded.secured.certificates import Authority, Certificate, broker_names

PASSWORD = "store-secret"


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def broker_of(authority: Authority, days: int = 397) -> Certificate:
    return authority.certificate("broker", "CN=broker", PASSWORD, names=broker_names(["b1.example"]), days=days)


@pytest.mark.spec("SEC-109")
def test_authority_and_leaves_are_of_the_kind_and_for_the_time_that_clients_take(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    ca, leaf = read(tmp_path / "ca.pem"), read(broker_of(authority).certificate)
    for certificate, days in ((ca, 3650), (leaf, 397)):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
        assert isinstance(certificate.signature_hash_algorithm, SHA256)
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert life == datetime.timedelta(days=days)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "b1.example"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("::1"),
    ]
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


@pytest.mark.spec("SEC-109")
@pytest.mark.parametrize(("days", "is_kept"), [(7, False), (9, True)], ids=["6 days left", "8 days left"])
def test_what_is_about_to_expire_is_made_anew_at_the_next_start(tmp_path: Path, days: int, is_kept: bool) -> None:
    """A certificate is valid from a day before it was made."""
    first = read(broker_of(Authority.open(tmp_path), days).certificate)
    again = read(broker_of(Authority.open(tmp_path)).certificate)
    assert (first == again) == is_kept
