"""The faults of a history: whom each befell, from when to when."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from tests.histories.history import History

ZOOKEEPER, TOPICS, REQUESTS = "ZooKeeper", "topics", "requests"
_OTHERS: Final = (ZOOKEEPER, TOPICS, REQUESTS)
_OF_BROKER: Final = re.compile(r"(?:at \d+: )?([a-z ]+) (\d+)(?:-(\d+))?(?: for \d+)?")
_OF_ZOOKEEPER: Final = frozenset({"zookeeper", "depose"})
_OF_TOPICS: Final = frozenset({"delete"})  # of the simulation, which names a broker all the same


class Shade(NamedTuple):
    """``lanes``: whom it befell; ``start`` and ``end`` in ns; ``name`` is short, ``told`` is what the history says."""

    lanes: tuple[str, ...]
    start: int
    end: int
    name: str
    told: str


def shades(history: History) -> list[Shade]:
    """Return all faults in their order. One whose end is not told goes on; the simulation tells it when it begins."""
    brokers = lanes_of_brokers(history)
    begun: dict[object, int] = {}
    found = []
    for line in history.faults:
        value = line["value"]
        if "until" in value:
            found += list(_shades(value["faults"], brokers, line["time"], value["until"], ""))
        elif value["begins"]:
            begun[value["step"]] = len(found)
            found += list(_shades(value["faults"], brokers, line["time"], history.times[-1], str(value["step"])))
        elif (first := begun.pop(value["step"], None)) is not None:
            for place in range(first, first + len(value["faults"])):
                found[place] = found[place]._replace(end=line["time"])
    return found


def lanes_of_brokers(history: History) -> list[str]:
    return [f"broker {number}" for number in range(1, history.header.get("brokers", 0) + 1)]


def lanes(history: History, found: Collection[Shade]) -> list[str]:
    """Return the brokers' lanes, and those of what else something befell."""
    met = {lane for shade in found for lane in shade.lanes}
    return [*lanes_of_brokers(history), *(lane for lane in _OTHERS if lane in met)]


def _shades(faults: Sequence[str], brokers: Sequence[str], start: int, end: int, step: str) -> Iterator[Shade]:
    for told in faults:
        befell, name = _befell(told, brokers, step)
        yield Shade(befell, start, end, name, told)


def _befell(told: str, brokers: Sequence[str], step: str) -> tuple[tuple[str, ...], str]:
    match = _OF_BROKER.fullmatch(told)
    if match is None:
        return (REQUESTS if step.startswith("frame") else TOPICS,), told.partition("(")[0]
    kind, one, other = match.groups()
    if kind in _OF_ZOOKEEPER:
        return (ZOOKEEPER,), kind
    if kind in _OF_TOPICS:
        return (TOPICS,), kind
    if kind.endswith(" all"):
        return tuple(brokers), kind
    return tuple(f"broker {number}" for number in (one, other) if number), kind
