from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkatool.broker.storage.checkpoint import CheckpointDamagedError
from kafkatool.broker.storage.log.leader_epochs import UNDEFINED, LeaderEpochCache

_small = st.integers(0, 12)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), _small, _small),
        st.tuples(st.just("end"), _small, st.just(0)),
        st.tuples(st.just("start"), _small, st.just(0)),
    ),
    max_size=12,
)


def _apply(model: dict[int, int], step: tuple[str, int, int]) -> dict[int, int]:
    """Apply the rules of BRK-60, said as sets."""
    kind, first, second = step
    if kind == "assign":
        if model and first == max(model) and second >= model[first]:
            return model
        return {e: s for e, s in model.items() if e < first and s < second} | {first: second}
    if kind == "end":
        return {e: s for e, s in model.items() if s < first}
    valid = [e for e, s in model.items() if s <= first]
    if not valid:
        return model
    return {e: s for e, s in model.items() if s > first} | {max(valid): first}


def _answer(model: dict[int, int], epoch: int, log_end: int) -> tuple[int, int]:
    """Answer by the rules of BRK-61."""
    if epoch < 0 or not model or epoch > max(model):
        return UNDEFINED
    if epoch == max(model):
        return epoch, log_end
    later = min(e for e in model if e > epoch)
    return max((e for e in model if e <= epoch), default=epoch), model[later]


@pytest.mark.spec("BRK-59", "BRK-60", "BRK-61")
@settings(deadline=None)
@given(_steps)
def test_any_history_ends_as_the_rules_say_and_is_on_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("epochs") / "leader-epoch-checkpoint"
    cache, model = LeaderEpochCache(path), dict[int, int]()
    for step in steps:
        model = _apply(model, step)
        kind, first, second = step
        if kind == "assign":
            cache.assign(first, second)
        elif kind == "end":
            cache.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
        assert cache.entries == sorted(model.items())
    cache.sync()
    assert LeaderEpochCache(path).entries == cache.entries
    assert cache.latest == max(model, default=None)
    for epoch in range(-1, 14):
        assert cache.end_offset_for(epoch, 100) == _answer(model, epoch, 100)


@pytest.mark.spec("BRK-61")
def test_the_end_of_an_epoch_is_where_the_next_known_one_begins(tmp_path: Path) -> None:
    cache = LeaderEpochCache(tmp_path / "f")
    cache.assign(2, 10)
    cache.assign(5, 30)
    assert cache.end_offset_for(-1, 50) == UNDEFINED
    assert cache.end_offset_for(1, 50) == (1, 10)
    assert cache.end_offset_for(2, 50) == (2, 30)
    assert cache.end_offset_for(4, 50) == (2, 30)
    assert cache.end_offset_for(5, 50) == (5, 50)
    assert cache.end_offset_for(6, 50) == UNDEFINED
    assert [cache.epoch_at(o) for o in (9, 10, 29, 30)] == [None, 2, 2, 5]
    assert cache.entries[-1] == (5, 30)


@pytest.mark.spec("BRK-161")
def test_cleared_cache_knows_nothing_after_a_restart(tmp_path: Path) -> None:
    cache = LeaderEpochCache(tmp_path / "f")
    cache.assign(1, 0)
    cache.sync()
    cache.clear()
    cache.sync()
    assert LeaderEpochCache(tmp_path / "f").latest is None


@pytest.mark.parametrize("text", ["0\n2\n1 0\n1 5\n", "0\n1\n1 x\n", "0\n2\n2 5\n3 5\n"])
@pytest.mark.spec("BRK-59", "BRK-147")
def test_epochs_that_do_not_rise_are_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(CheckpointDamagedError):
        LeaderEpochCache(tmp_path / "f")


@pytest.mark.spec("BRK-45", "BRK-59", "BRK-60")
def test_an_epoch_is_known_at_once_and_in_the_file_when_synced(tmp_path: Path) -> None:
    path = tmp_path / "f"
    cache = LeaderEpochCache(path)
    cache.assign(2, 10)
    cache.sync()
    cache.assign(5, 30)
    assert (cache.latest, cache.entries[-1], cache.end_offset_for(4, 50)) == (5, (5, 30), (2, 30))
    assert LeaderEpochCache(path).entries == [(2, 10)]
    cache.assign(7, 30)  # nothing was appended in epoch 5
    cache.sync()
    assert LeaderEpochCache(path).entries == [(2, 10), (7, 30)]


@pytest.mark.spec("BRK-59", "BRK-60", "BRK-137")
@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 9)),
            st.tuples(st.just("append"), st.integers(0, 9)),
            st.tuples(st.just("cut"), st.integers(0, 9)),
            st.tuples(st.just("flush"), st.just(0)),
            st.tuples(st.just("crash"), st.just(0)),
        ),
        max_size=20,
    )
)
def test_a_crash_never_forgets_an_epoch_that_has_records(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]]
) -> None:
    """Batches of three records, cut and written again in other epochs: a scan from the recovery point finds them all."""
    path = tmp_path_factory.mktemp("epochs") / "f"
    cache, batches, flushed = LeaderEpochCache(path), list[int](), 0  # the epochs of the batches
    for step, argument in history:
        if step == "append":
            batches.append(max([argument, *batches]) if argument % 2 else (batches or [argument])[-1])
            cache.assign(batches[-1], 3 * len(batches) - 3)
        elif step == "cut":
            batches = batches[: len(batches) * argument // 10]
            flushed = min(flushed, len(batches))
            cache.truncate_from_end(3 * len(batches))
        elif step == "flush":
            cache.sync()
            flushed = len(batches)
        else:
            after = LeaderEpochCache(path)
            for number in range(flushed, len(batches)):
                after.learn(batches[number], 3 * number)
            after.truncate_from_end(3 * len(batches))
            assert after.entries == cache.entries
            cache = after
