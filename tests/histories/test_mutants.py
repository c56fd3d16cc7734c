"""Every mutant's text is still in the broker's code; the slowest tests show each of them caught."""

import pytest

from tests.histories.mutants import (
    MUTANTS,
    TABLE,
    Mutant,
    Outcome,
    found_in,
    found_without,
    hunt,
    mutated,
    row,
    written,
)


@pytest.mark.spec("HIS-49")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: str(m.number))
def test_the_mutated_text_is_still_in_the_code(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.file, "exec")


def test_a_row_says_what_was_found() -> None:
    found = found_in("operations: 3\nANOMALY: duplicate 2 times: ...\nallowed (x): G0 1 times: ...\n")
    assert found == {"duplicate"}
    mutant = next(m for m in MUTANTS if m.number == 16)
    told = row(mutant, Outcome("freeze", 2, found))
    assert told.endswith("| freeze | yes | 2 | duplicate |")
    page = "before\n" + TABLE + "| 3 | x | kill | yes | 1 | y |\n| 16 | old | kill | **no** | 1 | nothing |\n\nafter\n"
    assert written(page, [told]) == page.replace("| 16 | old | kill | **no** | 1 | nothing |", told)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-49")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: str(m.number))
def test_a_mutant_is_caught_in_the_simulation(mutant: Mutant) -> None:
    outcome = hunt(mutant, 0)
    assert outcome.is_caught(mutant)
    assert not found_without(mutant, outcome.seeds), "it is the mutant that shows it"


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1500)
@pytest.mark.spec("HIS-49")
def test_a_mutant_that_shows_aborted_records_is_caught() -> None:
    mutant = next(m for m in MUTANTS if m.number == 36)
    assert hunt(mutant, 600).is_caught(mutant)
