"""The plan of the house, held by a test: rooms of a size to look through, with named doors (docs/architecture.md)."""

import ast
import functools
from pathlib import Path

from tests.paths import ROOT

LARGEST_ROOM = 15
ONE_FILE_PER_API = {"kafkatool.broker.handlers", "kafkatool.core.protocol.messages"}
ALL_DOORS = {"kafkatool.core.protocol.messages"}


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in sorted((ROOT / "kafkatool").rglob("*.py"))}
ROOMS = {name: file for name, file in MODULES.items() if file.name == "__init__.py"}


@functools.cache
def doors_of(room: str) -> set[str]:
    """Return the names in the room's ``__all__``: what other rooms may import."""
    for node in ast.parse(ROOMS[room].read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@functools.cache
def imports_of(module: str) -> list[tuple[str, str]]:
    """Return module, and name taken from it ("" for the module itself), of every import from this package."""
    found = []
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "kafkatool":
            wholes = [(f"{node.module}.{alias.name}", alias.name) for alias in node.names]
            found += [(whole, "") if whole in MODULES else (node.module, name) for whole, name in wholes]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name in MODULES]
    return found


def entered_by(module: str, imported: str) -> list[tuple[str, str]]:
    """Return the rooms that the import comes into from outside, each with the next step on the way."""
    steps = imported.split(".")
    rooms = [(".".join(steps[:depth]), steps[depth]) for depth in range(1, len(steps))]
    return [(room, step) for room, step in rooms if not f"{module}.".startswith(f"{room}.")]


def test_a_room_says_what_it_is_for_and_can_be_looked_through() -> None:
    for room, file in ROOMS.items():
        assert ast.get_docstring(ast.parse(file.read_text())), f"{room} says nothing"
        files = [other for other in file.parent.glob("*.py") if other != file]
        assert len(files) <= LARGEST_ROOM or room in ONE_FILE_PER_API, f"{room} holds {len(files)} files"


def test_a_room_is_entered_by_its_doors() -> None:
    for module in MODULES:
        for imported, name in imports_of(module):
            assert not name.startswith("_") or name == "__version__", f"{module} imports {name} of {imported}"
            for room, step in entered_by(module, imported):
                assert step in doors_of(room) or room in ALL_DOORS, f"{module} imports {imported} past {room}'s doors"


def test_a_room_has_no_door_that_nobody_uses() -> None:
    used = {door for module in MODULES for imported, _ in imports_of(module) for door in entered_by(module, imported)}
    assert {(room, door) for room in ROOMS for door in doors_of(room)} <= used
