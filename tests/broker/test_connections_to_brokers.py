"""Every connection from a broker to another is made by one class, with the security of the inter-broker listener."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import kafkatool

ROOT: Final = Path(kafkatool.__file__).parent
OPENS: Final = "kafkatool.core.client.connection"
ALLOWED: Final = (OPENS, "kafkatool.core.client.addresses")
"""Of the client's modules: the class, and what addresses mean, which opens nothing."""
NO_WAY_TO_A_BROKER: Final = {"broker/network/acceptor.py", "broker/faults/control.py"}
"""Who has sockets that lead to no broker: those that are accepted, and a test's own."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "broker").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("broker/embedded/"):  # starts brokers, is none
            yield name, ast.parse(path.read_text())


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


@pytest.mark.spec("SEC-48")
def test_no_module_of_a_broker_opens_a_socket_to_another_by_itself() -> None:
    seen = set()
    for name, tree in modules():
        for node in ast.walk(tree):
            call = called(node)
            if call in ("socket.create_connection", "socket.socket", "asyncio.open_connection") or ".connect(" in call:
                seen.add(name)
            imported = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            assert not imported.startswith("kafkatool.core.client") or imported in ALLOWED, f"{name} imports {imported}"
            assert imported not in ("http.client", "urllib.request"), f"{name} imports {imported}"
    assert seen <= NO_WAY_TO_A_BROKER


@pytest.mark.spec("SEC-48")
def test_each_connection_to_a_broker_has_the_security_of_the_inter_broker_listener() -> None:
    found = 0
    for name, tree in modules():
        imports = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == OPENS)
        if not any(alias.name == "Connection" for n in imports for alias in n.names):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) == "Connection":
                (security,) = [ast.unparse(k.value) for k in node.keywords if k.arg == "security"]
                assert security.rpartition(".")[2] in ("security", "inter_broker_security"), name
                found += 1
    assert found >= 5, "followers, controller, controlled stop, transactions, a controller alone"
