"""Security protocols by name and number."""

from kafkatool.core.model.security_protocols import SECURITY_PROTOCOLS, protocol_number


def test_numbers_are_kafkas_and_a_name_not_known_counts_as_plaintext() -> None:
    assert [protocol_number(name) for name in SECURITY_PROTOCOLS] == [0, 1, 2, 3]
    assert [protocol_number(name) for name in ("SASL_SSL", "SSL", "CUSTOM")] == [3, 1, 0]
