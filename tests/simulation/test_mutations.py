"""Each mutation of the controller's code is noticed by the simulation; the table of docs/simulation.md."""

import inspect

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation, applied, find
from tests.simulation.scenario import run

_MOST_SEEDS = 1500  # of one mutation; nearly all need less than fifty, and the rarest 1343


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_the_mutated_text_is_still_in_the_code(mutation: Mutation) -> None:
    owner, name = find(mutation.target)
    assert mutation.old in inspect.getsource(inspect.getattr_static(owner, name))


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(900)
@pytest.mark.spec("CTL-15", "CTL-35", "CTL-42", "ADM-74", "Z-43")
def test_the_simulation_notices_every_mutation(capsys: pytest.CaptureFixture[str]) -> None:
    rows, missed = [], []
    for mutation in MUTATIONS:
        with applied(mutation):
            why, seed = None, 0
            while why is None and seed < _MOST_SEEDS:
                seed += 1
                why = run(seed).why
        rows.append(f"| {mutation.name} | {seed} | {(why or 'NOT NOTICED')[:120]} |")
        if why is None:
            missed.append(mutation.name)
    with capsys.disabled():
        print("\n| mutation | seeds | what was noticed |\n|---|---|---|\n" + "\n".join(rows))
    assert not missed
    assert len(MUTATIONS) >= 20
