"""What no module may do that deals with TLS, secrets or nonces, seen in its text."""

import ast
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

OWN = sorted((ROOT / "kafkatool").rglob("*.py"))
OF_SECURITY = ("core/security", "broker/security")
UNCHECKED = {
    "core/security/tls.py",
    "core/security/handshake.py",
}  # what Kafka's settings ask for; a look that sends nothing
WRAPS = {"core/security/handshake.py", "broker/network/encrypted.py"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in OWN:
        yield file.relative_to(ROOT / "kafkatool").as_posix(), ast.parse(file.read_text())


def switches_checks_off(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
        return any(isinstance(t, ast.Attribute) and t.attr == "check_hostname" for t in node.targets)
    return (isinstance(node, ast.Attribute) and node.attr == "CERT_NONE") or (
        isinstance(node, ast.ImportFrom) and any(alias.name == "CERT_NONE" for alias in node.names)
    )


@pytest.mark.spec("SEC-118")
def test_certificates_and_names_go_unchecked_in_two_modules_alone() -> None:
    assert {name for name, tree in modules() if any(map(switches_checks_off, ast.walk(tree)))} == UNCHECKED


@pytest.mark.spec("SEC-118")
def test_sockets_become_tls_in_two_modules_alone() -> None:
    wraps = ("wrap_socket", "wrap_bio")
    found = {
        name
        for name, tree in modules()
        if any(isinstance(node, ast.Attribute) and node.attr in wraps for node in ast.walk(tree))
    }
    assert found == WRAPS


@pytest.mark.spec("SEC-118")
def test_nothing_of_security_is_drawn_from_random() -> None:
    for name, tree in modules():
        if name.startswith(OF_SECURITY):
            for node in ast.walk(tree):
                named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert "random" not in named, name
