"""Who holds and leads how much: a row for each broker of the cluster, dead ones included (ADM-105). Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkatool.core.operations.brokers.answers import Answers, LogDir, is_kraft
from kafkatool.core.operations.brokers.releases import Release, release_of
from kafkatool.core.operations.election import election
from kafkatool.core.operations.reassignment.throttles import RATES
from kafkatool.core.zookeeper.cluster_view import ClusterView

UNTHROTTLED: Final = str(2**63 - 1)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker. What it would have to say itself is None where it did not: it is dead, silent, or too old.

    ``out_of_isr``: its replicas that are not in sync. Rates in bytes per second; None: no throttle.
    """

    broker: int
    host: str | None
    port: int | None
    rack: str | None
    live: bool
    controller: bool
    release: Release | None
    leaders: int
    preferred: int
    replicas: int
    out_of_isr: int
    imbalance: float
    log_dirs: tuple[LogDir, ...] | None
    leader_rate: str | None
    follower_rate: str | None

    @property
    def bytes(self) -> int | None:
        """Return what its replicas come to; None: not told."""
        return None if self.log_dirs is None else sum(found.bytes for found in self.log_dirs)

    @property
    def least_free(self) -> int | None:
        """Return the free bytes of the directory that has least; None: not told."""
        known = [found.free_bytes for found in self.log_dirs or () if found.free_bytes is not None]
        return min(known, default=None)


class Spread(NamedTuple):
    """The least and the most that a live broker has of something."""

    least: int
    most: int

    @property
    def ratio(self) -> float | None:
        """Return most to least; None: a broker has none of it, and another has."""
        if self.least:
            return self.most / self.least
        return None if self.most else 1.0


def lay_out(view: ClusterView, answers: Answers, rates: Mapping[int, Mapping[str, str]]) -> tuple[BrokerRow, ...]:
    """Return a row for each broker that is registered, or named in an assignment, by id. ``rates``: throttles set."""
    balance = {row.broker_id: row for row in election.report(view)}
    assigned = {p: view.topics[p.topic].assignment[p.partition] for p in view.partitions()}
    replicas = Counter(b for of in assigned.values() for b in of)
    isr = {p: state.leader_and_isr.isr for p in assigned if (state := view.states.get(p)) is not None}
    in_sync = Counter(b for p, of in isr.items() for b in set(assigned[p]).intersection(of))
    rows = []
    for broker in sorted({*view.brokers, *replicas}):
        info, row, answer = view.brokers.get(broker), balance.get(broker), answers.told.get(broker)
        plain = [e for e in info.endpoints if e.protocol == "PLAINTEXT"] or list(info.endpoints) if info else []
        throttle = rates.get(broker, {})
        rows.append(
            BrokerRow(
                broker=broker,
                host=plain[0].host if plain else None,
                port=plain[0].port if plain else None,
                rack=info.rack if info else None,
                live=info is not None,
                controller=broker == view.controller_id and not (answer and is_kraft(answer.served)),
                release=release_of(answer.served) if answer else None,
                leaders=row.leaders if row else 0,
                preferred=row.preferred if row else 0,
                replicas=replicas[broker],
                out_of_isr=replicas[broker] - in_sync[broker],
                imbalance=row.imbalance if row else 0.0,
                log_dirs=answer.log_dirs if answer else None,
                leader_rate=throttle.get(RATES[0]),
                follower_rate=throttle.get(RATES[1]),
            )
        )
    return tuple(rows)


def told_rates(answers: Answers) -> dict[int, dict[str, str]]:
    """Return the throttles that brokers say are set on them; the largest number stands for none."""
    found = {b: {key: (a.configs or {}).get(key) for key in RATES} for b, a in answers.told.items()}
    return {b: {k: v for k, v in rates.items() if v is not None and v != UNTHROTTLED} for b, rates in found.items()}


def spread(rows: Sequence[BrokerRow]) -> dict[str, Spread]:
    """Return how unevenly replicas, leaders and bytes lie on the live brokers; bytes only where all of them told."""
    live = [row for row in rows if row.live]
    if not live:
        return {}
    found = {
        "replicas": Spread(min(r.replicas for r in live), max(r.replicas for r in live)),
        "leaders": Spread(min(r.leaders for r in live), max(r.leaders for r in live)),
    }
    sizes = [row.bytes for row in live]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        found["bytes"] = Spread(min(known), max(known))
    return found
