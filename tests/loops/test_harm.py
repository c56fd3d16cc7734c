"""What is done to loops is the seed's, and befalls those it names."""

from collections import Counter
from itertools import islice
from struct import pack

from tests.loops.harm import KINDS, harms, speaker_of


def test_the_same_seed_does_the_same_harm_and_all_kinds_of_it_to_all() -> None:
    drawn = list(islice(harms(7, 15), 200))
    assert drawn == list(islice(harms(7, 15), 200)) != list(islice(harms(8, 15), 200))
    assert {harm.kind for step in drawn for harm in step} == set(KINDS)
    assert {harm.copier for step in drawn for harm in step} == set(range(15))
    assert all(max(Counter(harm.copier for harm in step).values(), default=0) <= 1 for step in drawn)


def test_a_loop_is_told_from_a_broker_and_from_another_loop() -> None:
    def first(client_id: str) -> bytes:
        return pack(">ihhih", 10, 18, 0, 1, len(client_id)) + client_id.encode()

    assert speaker_of(first("java-3.9-1")) == "java-3.9-1"
    assert speaker_of(first("streams-0-StreamThread-1-consumer")) == "streams-0"
    assert speaker_of(first("broker-2-fetcher-0")) == "2"
    assert speaker_of(first("3")) == "3"
