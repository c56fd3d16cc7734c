"""The proof that a broker is empty: nothing in the cluster's metadata names it, and nothing lies on its disks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import Answers
from kafkatool.core.zookeeper.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class Proof:
    """What is left of one broker: partitions that name it in AR or ISR, that it leads, that lie on its disks.

    ``on_disk`` None: not told. A ``live`` broker has to tell; a dead one cannot. ``offline``: directories nobody can read.
    """

    broker: int
    live: bool
    assigned: tuple[TopicPartition, ...]
    in_sync: tuple[TopicPartition, ...]
    leads: tuple[TopicPartition, ...]
    on_disk: tuple[TopicPartition, ...] | None
    offline: tuple[str, ...] = ()

    @property
    def drained(self) -> bool:
        told = (self.on_disk == () and not self.offline) if self.live else True
        return told and not (self.assigned or self.in_sync or self.leads)


def prove(view: ClusterView, drained: Sequence[int], answers: Answers) -> tuple[Proof, ...]:
    """Return what is left of each of those brokers. Topics being deleted count too: they lie on disks until they go."""
    found = []
    for broker in drained:
        states = {p: state.leader_and_isr for p, state in view.states.items()}
        answer = answers.told.get(broker)
        dirs = answer.log_dirs if answer else None
        found.append(
            Proof(
                broker=broker,
                live=broker in view.brokers,
                assigned=tuple(p for p in view.partitions() if broker in view.topics[p.topic].assignment[p.partition]),
                in_sync=tuple(sorted(p for p, state in states.items() if broker in state.isr)),
                leads=tuple(sorted(p for p, state in states.items() if broker == state.leader)),
                on_disk=None if dirs is None else tuple(sorted({p for d in dirs for p in (*d.sizes, *d.arriving)})),
                offline=tuple(d.path for d in dirs or () if d.offline),
            )
        )
    return tuple(found)
