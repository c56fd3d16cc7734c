"""A command that goes by ZooKeeper and by requests names either only where it opens the way (ADM-16)."""

import ast
from pathlib import Path

import pytest

from tests.paths import ROOT

COMMANDS = ROOT / "kafkatool" / "commands"
ROOMS = sorted(file.parent for file in COMMANDS.glob("*/open_way.py"))
BACKENDS = (
    *("kafkatool.core.zookeeper.session", "kafkatool.core.zookeeper.cluster_view", "kafkatool.core.zookeeper.znodes"),
    *("kafkatool.core.client.cluster", "kafkatool.core.operations.requests"),
)


def named(file: Path) -> set[str]:
    """Return the backends that a module imports, wherever in it, but for what only its types need."""
    tree = ast.parse(file.read_text())
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found = set()
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {b for b in BACKENDS for name in found if name == b or name.startswith(f"{b}.")}


@pytest.mark.spec("ADM-16")
def test_either_backend_is_named_only_by_the_two_ways_of_a_command() -> None:
    assert {room.name for room in ROOMS} >= {"acls", "drain", "health", "users"}
    for room in ROOMS:
        for file in sorted(room.glob("*.py")):
            if file.name in ("by_znode.py", "by_request.py"):
                assert named(file), f"{file} goes no way"
            else:
                assert not named(file), f"{file.relative_to(ROOT)} names {', '.join(sorted(named(file)))}"
