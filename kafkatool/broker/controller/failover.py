"""The steps of a newly elected controller in the order of CTL-24; the letters are its additions.

Watches are set before anything is read, so nothing created in between is missed (CTL-25): what fires meanwhile is
queued and handled afterwards. An error in any step ends in resigning (CTL-26).
Source: Kafka 0.10.2.1 and 1.1.1 controller/KafkaController.scala.
"""

import logging

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.term import Term
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import States

log = logging.getLogger(__name__)


def take_over(term: Term) -> None:
    """Read the cluster, begin the state machines and resume what the last controller left: steps 2 to 12."""
    context = term.context
    term.reassignment.watch()  # 2
    leftovers = term.notifications.watch_isr_changes() + term.notifications.watch_log_dir_events()  # 2a
    term.preferred_election.watch()  # 3
    topics = term.topic_changes.watch()  # 4
    marked = term.deletion.watch()  # 5
    broker_names = term.broker_changes.watch()  # 6
    term.zookeeper.delete(leftovers)  # 6a

    states = _fill_context(term, topics, broker_names)  # 7
    reassignments = term.reassignment.read()
    election = term.preferred_election.read()
    term.preferred_election.note(election)
    term.deletion.queue_at_failover(marked)
    with term.batch.filling():  # 7a
        term.batch.add_metadata(context.leadership)
    context.bounced_replicas = bounced = _bounced(context, states)  # in step 8 they lead nothing and leave the ISR
    with term.batch.filling():  # 8
        term.replicas.startup()
        term.partitions.startup()
    with term.batch.filling():  # 8b: an addition of ours
        term.replicas.move(_dead_in_sync(context), ReplicaStatus.OFFLINE)
    if bounced:  # 8c: another
        _begin_anew(term, bounced)
    # 8a: each topic's data is watched since it was read in 7; 9: the term is the mark of RunningAsController
    term.reassignment.resume(reassignments)  # 9a
    if election is not None:
        wanted = [p for p in election.partitions if _needs_election(term, p)]
        term.preferred_election.serve(election._replace(partitions=wanted))
    with term.batch.filling():  # 10
        term.batch.add_metadata(context.leadership)
    term.rebalance.start()  # 11
    term.deletion.resume()  # 12
    log.info(
        "controller epoch %d: %d brokers, %d topics, %d partitions",
        context.epoch,
        len(context.brokers),
        len(context.assignments),
        len(context.leadership),
    )


def _fill_context(term: Term, topics: list[str], broker_names: list[str]) -> States:
    context = term.context
    context.brokers = term.broker_changes.read(broker_names)
    for topic, node in term.topic_changes.read(sorted(topics)).items():
        context.assign(topic, node.assignment)
        term.reassignment.note(topic, node.moves)
    states = term.zookeeper.read_states(context.partitions())
    if any(state.leader_and_isr.controller_epoch > context.epoch for state in states.found.values()):
        term.zookeeper.commit([])  # fails if we are deposed: what the successor has decided is not ours to tell
    context.leadership = states.found
    context.unreadable = set(states.unreadable)
    for broker in context.brokers.values():
        term.channels.open(broker)
    return states


def _bounced(context: ControllerContext, states: States) -> dict[TopicPartition, list[int]]:
    """Find live members of an ISR from before they registered: from a life whose end no controller has seen.

    What they had then their log may have lost since, with a crash of the machine; as leaders they would have everybody
    else cut it off as well. Only where another member of that ISR has lived on: without one nothing better is known,
    and whoever is not in the ISR certainly has less. Topics being deleted keep their states when a broker dies (CTL-38).
    """
    registered = {b: info.epoch or 0 for b, info in context.brokers.items()}
    last = max(registered.values(), default=0)
    found = {}
    for partition, state in states.found.items():
        written = states.written[partition]
        if written > last or context.is_deleting(partition):
            continue
        replicas = context.replicas(partition)
        in_sync = [b for b in state.leader_and_isr.isr if b in registered and b in replicas]
        former = [b for b in in_sync if registered[b] > written]
        if former and len(former) < len(in_sync):
            found[partition] = former
    return found


def _begin_anew(term: Term, bounced: dict[TopicPartition, list[int]]) -> None:
    """Treat them as new brokers (CTL-35): told who leads, and taken into the ISR when they have caught up."""
    log.info(
        "of %d partitions brokers %s were in sync in a life that no controller saw end: they follow anew",
        len(bounced),
        sorted({b for brokers in bounced.values() for b in brokers}),
    )
    term.context.bounced_replicas = {}
    with term.batch.filling():
        term.replicas.move(bounced, ReplicaStatus.ONLINE)
        leaderless = [p for p in bounced if term.context.status_of(p) is PartitionStatus.OFFLINE]
        term.partitions.move(leaderless, PartitionStatus.ONLINE)


def _dead_in_sync(context: ControllerContext) -> dict[TopicPartition, list[int]]:
    """Find dead members of ISRs where the leader lives: their broker died with, or before, the old controller.

    As in Kafka >= 2.1. Left in the ISR they would hold back every acks=all write until replica.lag.time.max.ms is over.
    """
    found = {}
    for partition, state in context.leadership.items():
        live = context.live_for(partition)
        dead = [b for b in state.leader_and_isr.isr if b not in live]
        if dead and state.leader_and_isr.leader in live and not context.is_deleting(partition):
            found[partition] = dead
    return found


def _needs_election(term: Term, partition: TopicPartition) -> bool:
    """Tell whether the partition exists and is not led by its preferred replica already (CTL-27)."""
    context = term.context
    return context.knows(partition) and context.leader(partition) != next(iter(context.replicas(partition)), None)
