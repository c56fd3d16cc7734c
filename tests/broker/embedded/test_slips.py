"""What a caller cannot mean is refused, with what was probably meant."""

import re
from pathlib import Path
from typing import Any

import pytest

from kafkatool import EmbeddedCluster
from kafkatool.broker.embedded.slips import require_properties
from kafkatool.core.errors import RefusedError


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, "adjust(1, ...) returned None: a dict is wanted"),
        ("num.io.threads=2", "returned 'num.io.threads=2': a dict is wanted"),
        ({"num.io.thread": "2"}, "no broker option num.io.thread: did you mean num.io.threads?"),
        (
            {"listener.name.ssl.plain.ssl.client.auth": "none"},
            "no broker option listener.name.ssl.plain.ssl.client.auth",
        ),
        ({"num.io.threads": 2}, "returned 'num.io.threads': 2: properties are texts"),
    ],
)
def test_what_adjust_cannot_mean_is_refused(made: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(words)):
        require_properties(1, made, {"broker.id": "1", "kt.fault.socket": "there"})


def test_what_adjust_returns_is_had_besides() -> None:
    before = {"broker.id": "1", "kt.fault.socket": "there"}
    of_one_mechanism = "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"
    for made in (
        {},
        {"listener.name.ssl.ssl.client.auth": "none"},
        {"listener.name.open.max.connections": "10"},
        {of_one_mechanism: "Login required;"},
        {"listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": "5000"},
        {"kt.fault.socket": "elsewhere"},
    ):
        assert require_properties(1, made, before) == made


@pytest.mark.parametrize(
    ("security", "passwords", "words"),
    [
        (
            "sasl_ss",
            {},
            "security='sasl_ss': there are plaintext, ssl, sasl_plaintext, sasl_ssl: did you mean sasl_ssl?",
        ),
        (None, {}, "security='none': there are plaintext, ssl"),
        ("plaintext", {"alice": "x"}, "a cluster that is not secured has no users, and no passwords"),
        ("SASL_SSL", {"alise": "x"}, "there are admin, alice, kafka: did you mean alice?; cluster.add_user('alise', "),
        ("ssl", {"alice": "x"}, "no user alice in a cluster with security='ssl', they are certificates"),
    ],
)
def test_security_that_cannot_be_meant_is_refused(tmp_path: Path, security: Any, passwords: Any, words: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(words)):
        EmbeddedCluster(1, directory=tmp_path, security=security, passwords=passwords)


def test_security_may_be_said_in_any_case(tmp_path: Path) -> None:
    EmbeddedCluster(1, directory=tmp_path, security="SASL_SSL", passwords={"admin": "a", "alice": "b", "kafka": "c"})
    EmbeddedCluster(1, directory=tmp_path, security="Plaintext")
