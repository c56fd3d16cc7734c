"""The facts about one partition as data, as ``kt logs timeline`` prints them (SCL-17X). Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from kafkatool.core.statelog.history.fact import Fact, Witness
from kafkatool.core.statelog.history.facts import History
from kafkatool.core.statelog.history.observations import milliseconds

FINAL: Final = "final"
"""The kind of the last item of each partition: how it stands at the end of the logs, or at the end time asked for."""

Item = dict[str, Any]

_PLAIN: Final = tuple(f.name for f in fields(Fact) if f.name not in ("time", "kind", "witnesses"))
ITEM_KEYS: Final = ("time", "topic", "partition", "fact", *_PLAIN, "witnesses")
"""The keys of every item, in order."""


def partition_items(
    topic: str,
    partition: int,
    history: History,
    names: Mapping[int, str] | Sequence[str],
    *,
    start_time: str,
    end: str,
    with_ignored: bool,
) -> Iterator[Item]:
    """Yield the facts from ``start_time`` on, and how the partition stands at ``end``; nothing without any fact.

    ``names`` are those of the logs, for the witnesses. OSError.
    """
    has_facts = False
    for fact in history.facts:
        if fact.kind != "ignored" or with_ignored:
            has_facts = True
            if fact.time >= start_time:
                yield _item(topic, partition, fact, names)
    if not has_facts:
        return
    final = Fact(
        end,
        FINAL,
        leader=history.leader if history.leader is not None and history.leader >= 0 else None,
        leader_epoch=history.leader_epoch,
        isr=history.isr,
        partition_epoch=history.partition_epoch,
        topic_id=history.topic_id,
        leader_recovery_state=history.leader_recovery_state,
        mode=history.mode,
        reason="deleted" if history.deleted else "no leader" if history.leader == -1 else None,
    )
    yield _item(topic, partition, final, ())


def _item(topic: str, partition: int, fact: Fact, names: Mapping[int, str] | Sequence[str]) -> Item:
    """Return a fact as JSON has it: every key always there. ``late_ms``: a witness's clock against the fact's time."""
    item: Item = {"time": fact.time, "topic": topic, "partition": partition, "fact": fact.kind}
    for name in _PLAIN:
        value = getattr(fact, name)
        item[name] = list(value) if isinstance(value, tuple) else value
    item["witnesses"] = [_witness(w, fact, names) for w in fact.witnesses]
    return item


def _witness(witness: Witness, fact: Fact, names: Mapping[int, str] | Sequence[str]) -> Item:
    return {
        "broker": witness.broker,
        "role": witness.role,
        "time": witness.time,
        "late_ms": milliseconds(witness.time) - milliseconds(fact.time),
        "file": names[witness.source],
        "line": witness.line,
    }
