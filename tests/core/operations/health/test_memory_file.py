"""What looks leave, kept from one run to the next."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.health import memory_file
from kafkatool.core.operations.health.memory import Memory, Suspicion, remember
from tests.core.operations.health.readings import NOW, T0, T1, log_dir, reading, state, told

pytestmark = pytest.mark.spec("ADM-107")


def a_memory() -> Memory:
    """Return the memory of looks that find something of all kinds."""
    noted = {"adding_replicas": {"0": [3]}}
    answers = {3: told(log_dir(sizes={T0: 7}), fetch=2)}
    looks = [
        reading(at_s=NOW - 60, states={T0: state(None, 1, epoch=1)}, term=(1, 3)),
        reading(noted=noted, states={T0: state(2, 2, epoch=2), T1: state(2, 2)}, answers=answers, term=(2, 4)),
    ]
    memory = Memory()
    for look in looks:
        memory = remember(memory, look)
    return memory


def test_what_was_written_is_read_again_but_for_what_the_next_run_looks_at_twice(tmp_path: Path) -> None:
    memory = a_memory()
    assert memory.unclean == {T0: Suspicion(NOW, is_certain=True)} and memory.moves and memory.mixed_since_s == NOW
    assert memory.epochs and memory.terms and memory.free
    memory_file.write(tmp_path / "state.json", memory, "c")
    kept = replace(memory, no_controller_since_s=None, idle_throttles={}, fresh=frozenset(), unled=frozenset())
    assert memory_file.read(tmp_path / "state.json", "c") == kept
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_of_no_file_an_empty_one_and_one_of_another_version_nothing_is_known(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    assert memory_file.read(file, "c") == Memory()
    file.touch()
    assert memory_file.read(file, "c") == Memory()
    file.write_text('{"tool":"kt health","version":99,"cluster_id":"c"}')
    assert memory_file.read(file, "c") == Memory()


def test_what_is_damaged_or_of_another_cluster_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    memory_file.write(file, a_memory(), "c")
    whole = file.read_bytes()
    with pytest.raises(RefusedError, match="is that of cluster c, and this is cluster d"):
        memory_file.read(file, "d")
    damaged = [whole[: len(whole) // 2], b"[]", b"{}", b'"text"', b"\xff", b'{"tool":"another"}']
    damaged.append(whole.replace(b'"moves":[[', b'"moves":[[1,'))
    damaged.append(whole.replace(b'"t":{', b'"t":{"x":7,'))
    for content in damaged:
        assert content != whole
        file.write_bytes(content)
        with pytest.raises(RefusedError, match="is no state file of kt health, or damaged"):
            memory_file.read(file, "c")
    with pytest.raises(RefusedError, match="cannot read"):
        memory_file.read(tmp_path, "c")
    with pytest.raises(RefusedError, match="cannot write"):
        memory_file.write(tmp_path / "nowhere" / "state.json", Memory(), "c")
