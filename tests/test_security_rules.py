"""What code that handles secrets must not do, found by reading its syntax (SEC-118)."""

import ast
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

LOOKS_AT_A_PORT: Final = "core/security/handshake.py"
"""Asks what a port speaks, sends nothing, and so trusts anybody."""
WRITES_CREDENTIALS: Final = "core/security/credential_files.py"
COMPARES_SECRETS: Final = "core/security/stores.py"
"""By ``Secret``'s own comparison, which takes the same time for all."""
SECRETIVE: Final = (
    "core/security",
    "broker/security",
    "broker/embedded/secured/security.py",
    "broker/embedded/secured/certificates.py",
)
"""Where passwords, keys and nonces are made, compared and kept."""
_SECRETS: Final = {"password", "secret", "proof", "signature", "stored_key", "server_key", "server_signature", "digest"}

Rule = Callable[[ast.AST], bool]


@functools.cache
def sources() -> list[tuple[str, list[ast.AST]]]:
    """Return all files of the package, each with all that its syntax is made of."""
    package = ROOT / "kafkatool"
    files = sorted(package.rglob("*.py"))
    return [(file.relative_to(package).as_posix(), list(ast.walk(ast.parse(file.read_text())))) for file in files]


def broken(rule: Rule, *, below: tuple[str, ...] = ("",), but: str = "") -> list[str]:
    """Return where the rule is broken, in files below those places."""
    return [
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, nodes in sources()
        if name.startswith(below) and name != but
        for node in nodes
        if rule(node)
    ]


def trusts_anybody(node: ast.AST) -> bool:
    """Tell whether names or certificates of a peer are left unchecked from here on."""
    if not isinstance(node, ast.Assign):
        return False
    targets = {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
    value = ast.unparse(node.value)
    return ("check_hostname" in targets and value == "False") or ("verify_mode" in targets and "CERT_NONE" in value)


def wraps_without_a_context(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node) in (
        "ssl.wrap_socket",
        "ssl._create_unverified_context",
    )


def compares_a_secret(node: ast.AST) -> bool:
    """Tell whether a secret is compared by a loop that ends at the first difference. Lengths and None tell nothing."""
    if not isinstance(node, ast.Compare) or not any(isinstance(one, ast.Eq | ast.NotEq) for one in node.ops):
        return False
    sides = [node.left, *node.comparators]
    names = {side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "") for side in sides}
    return bool(names & _SECRETS)


def can_be_foretold(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name == "random" for alias in node.names)
    return isinstance(node, ast.ImportFrom) and node.module == "random"


def writes_a_file(node: ast.AST) -> bool:
    """Tell whether a file is made or written otherwise than by who makes it its owner's alone."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    if called.endswith((".write_text", ".write_bytes")) or called == "os.open":
        return True
    modes = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return called == "open" and any(isinstance(mode, str) and set(mode) & set("wax+") for mode in modes)


RULES: Final[dict[str, tuple[Rule, tuple[str, ...], str, str]]] = {
    "trust": (
        trusts_anybody,
        ("",),
        LOOKS_AT_A_PORT,
        "context.check_hostname = False\ncontext.verify_mode = ssl.CERT_NONE",
    ),
    "context": (wraps_without_a_context, ("",), "", "ssl.wrap_socket(s)\nssl._create_unverified_context()"),
    "compare": (compares_a_secret, ("",), COMPARES_SECRETS, "ok = proof == known.stored_key\nbad = password != given"),
    "random": (can_be_foretold, SECRETIVE, "", "from random import randbytes\nimport random"),
    "write": (
        writes_a_file,
        SECRETIVE,
        WRITES_CREDENTIALS,
        "path.write_text(password)\npath.write_bytes(key)\nos.open(path, flags)\nopen(path, 'w')",
    ),
}


@pytest.mark.spec("SEC-118")
@pytest.mark.parametrize("name", RULES)
def test_no_code_breaks_a_rule_of_security(name: str) -> None:
    rule, below, but, wrong = RULES[name]
    for statement in ast.parse(wrong).body:
        assert any(rule(node) for node in ast.walk(statement)), "the rule finds nothing"
    assert broken(rule, below=below, but=but) == []


def test_the_places_named_are_there() -> None:
    package = ROOT / "kafkatool"
    assert all(
        Path(package / place).exists() for place in (*SECRETIVE, LOOKS_AT_A_PORT, COMPARES_SECRETS, WRITES_CREDENTIALS)
    )
