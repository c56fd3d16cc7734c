"""Which request a rule meets, and rules out of a seed."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.histories.frames.frame import Asked
from tests.histories.frames.rules import MOMENTS, Act, Call, Hold, Late, Lose, Rule, Rules, draw

LOSE = Lose()


def asked(api: str, client: str | None = "c", **body: Any) -> Asked:
    return Asked(0, api, 0, 0, client, 0, body)


@pytest.mark.spec("HIS-46")
def test_a_rule_meets_the_nth_request_of_its_api_by_its_client_and_no_other() -> None:
    rules = Rules()
    armed = rules.add(Rule("EndTxn", LOSE, nth=2, client="c"))
    others = [asked("Fetch"), asked("EndTxn", "d"), asked("EndTxn", None)]
    for request in [*others, asked("EndTxn"), *others]:
        assert rules.meet(request) is None
    assert not rules.spent
    assert rules.meet(asked("EndTxn")) is armed
    assert rules.spent
    assert [rules.meet(asked("EndTxn")) for _ in range(3)] == [None] * 3


@pytest.mark.spec("HIS-46")
def test_a_rule_without_a_client_is_for_all_and_one_with_a_body_for_those_that_say_so() -> None:
    rules = Rules()
    any_client = rules.add(Rule("Fetch", LOSE, nth=3))
    aborts = rules.add(Rule("EndTxn", LOSE, body={"committed": False}))
    found = [rules.meet(asked("Fetch", client)) for client in ("a", None, "b")]
    assert found == [None, None, any_client]
    assert rules.meet(asked("EndTxn", committed=True, epoch=1)) is None
    assert rules.meet(asked("EndTxn", committed=False, epoch=1)) is aborts


@pytest.mark.spec("HIS-46")
def test_of_several_rules_the_first_is_done_and_what_is_cleared_meets_nothing() -> None:
    rules = Rules()
    first, second = rules.add(Rule("Fetch", LOSE)), rules.add(Rule("Fetch", Hold()))
    third = rules.add(Rule("Fetch", LOSE, nth=2))
    assert rules.meet(asked("Fetch")) is first and second.met.is_set() and not third.met.is_set()
    rules.clear()
    assert rules.meet(asked("Fetch")) is None and rules.spent
    assert second.released.is_set() and third.released.is_set()


@pytest.mark.spec("HIS-46")
def test_a_seed_draws_its_rules_and_all_that_can_happen_is_drawn() -> None:
    seen = {("EndTxn", "tom"): 2, ("OffsetCommit", "tom"): 2, ("TxnOffsetCommit", "tom"): 2, ("Fetch", ""): 30}
    commits = {api for api, _ in seen} - {"Fetch"}

    def drawn(seed: int, *calls: Callable[[int], object]) -> list[Rule]:
        chance = random.Random(seed)
        return [draw(chance, seen, calls) for _ in range(1000)]

    assert drawn(7, print) == drawn(7, print) != drawn(8, print)
    rules = drawn(9, print)
    assert {(rule.api, rule.client) for rule in rules} == {(api, client or None) for api, client in seen}
    assert {rule.nth for rule in rules if rule.api == "EndTxn"} == {1, 2}
    acts: dict[str, list[Act]] = {api: [rule.act for rule in rules if rule.api == api] for api, _ in seen}
    assert {type(act) for act in acts["Fetch"]} == {Hold, Late, Lose, Call}
    for api in commits:
        assert {type(act) for act in acts[api]} == {Hold, Lose, Call}
    assert {act.moment for act in acts["Fetch"] if isinstance(act, Call)} == set(MOMENTS)
    assert {type(rule.act) for rule in drawn(9)} == {Hold, Late, Lose}
