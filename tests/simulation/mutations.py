"""Faults put into the controller's own code, one at a time: what the simulation has to notice.

A mutation replaces a piece of one function's source text. A text that is not there any more is an error, so the table
cannot outlive the code it is about.
"""

import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_CONTROLLER = "kafkatool.broker.controller."


class Mutation(NamedTuple):
    """``target`` is module:function or module:Class.method below the controller's package."""

    name: str
    target: str
    old: str
    new: str


MUTATIONS: tuple[Mutation, ...] = (
    # --- conditional writes and epochs
    Mutation("writes are not bound to the controller epoch", "writing.zookeeper_writes:FencedZooKeeper.commit_groups",
             "[[self._check, *", "[[Check(ControllerEpochZnode.PATH, -1), *"),
    Mutation("states are written on any version", "writing.zookeeper_writes:FencedZooKeeper.update_states",
             "s.version)]", "-1)]"),
    Mutation("the controller epoch is raised on any version", "election:win", "data, node.version)", "data, -1)"),
    Mutation("the controller epoch is not raised", "election:win", "decode(node.data) + 1", "decode(node.data)"),
    Mutation("an election does not raise the leader epoch", "deciding.partition_machine:PartitionStateMachine._decide",
             "now.leader_epoch + 1", "now.leader_epoch"),
    Mutation("steps 2 and 7 do not raise the leader epoch", "deciding.partition_machine:PartitionStateMachine.raise_epochs",
             "now.leader_epoch + 1", "now.leader_epoch"),
    Mutation("leaving the ISR does not raise the leader epoch", "deciding.leader_selection:without_replicas",
             "state.leader_epoch + 1", "state.leader_epoch"),
    Mutation("brokers are told the version from before the election",
             "writing.zookeeper_writes:FencedZooKeeper.change_states",
             "PartitionState(new[partition].leader_and_isr, outcome)", "new[partition]"),
    Mutation("every transaction with a lost reply counts as done",
             "kafkatool.core.zookeeper.session:ZooKeeper._was_committed",
             "return bool(writes) and all(", "return bool(writes) or all("),
    # --- who leads
    Mutation("a leader is taken from outside the ISR", "deciding.leader_selection:elect_offline",
             "if broker in in_sync:", "if broker in live:"),
    Mutation("the preferred replica leads though it is not in sync", "deciding.leader_selection:elect_reassigned",
             "b in live and b in state.isr", "b in live"),
    Mutation("at a shutdown a replica leads that is not in sync", "deciding.leader_selection:elect_for_shutdown",
             "b in live and b in state.isr and", "b in live and"),
    Mutation("the last member leaves the ISR", "deciding.leader_selection:without_replicas",
             "    if not isr:", "    if False:"),
    Mutation("offline replicas stay in the ISR", "deciding.leader_selection:without_replicas",
             "isr = tuple(b for b in state.isr if b not in gone)", "isr = state.isr"),
    # --- failover
    Mutation("failover does not start the partitions", "failover:take_over", "term.partitions.startup()", "pass"),
    Mutation("failover does not tell the replicas", "failover:take_over", "term.replicas.startup()", "pass"),
    Mutation("failover does not resume reassignments", "failover:take_over",
             "term.reassignment.resume(reassignments)", "pass"),
    Mutation("failover does not resume elections", "failover:take_over", "if election is not None:", "if False:"),
    Mutation("a broker that bounced unseen leads on", "failover:take_over", "_bounced(context, states)", "{}"),
    Mutation("failover does not resume deletions", "failover:take_over", "term.deletion.resume()", "pass"),
    Mutation("a lost session does not end the term", "worker:ControllerWorker._on_expired", "self.resign()", "pass"),
    Mutation("/controller is watched once only", "worker:ControllerWorker._on_controller_change",
             "node = self._read()", "node = self._zookeeper.get(ControllerZnode.PATH)"),
    Mutation("a new session makes no attempt", "worker:ControllerWorker._on_new_session", "self.elect()", "pass"),
    # --- watches that are not set again
    Mutation("/brokers/ids is watched once only", "work.broker_changes:BrokerChanges._on_change",
             "names = self.watch()", "names = self.session.children(BrokersZnode.PATH) or []"),
    Mutation("/brokers/topics is watched once only", "work.topic_changes:TopicChanges.refresh",
             "if watched else", "if True else"),
    Mutation("a topic is watched once only", "work.topic_changes:TopicChanges._on_data",
             "self.read([topic])", "self._read([topic])"),
    Mutation("/admin/delete_topics is watched once only", "work.topic_deletion:TopicDeletion._on_marked",
             "marked = self.watch()",
             "marked = self.session.children(DeleteTopicsZnode.PATH) or []"),
    Mutation("the reassignment request is watched once only", "work.reassignment:Reassignment.watch",
             "self._take_up(self.watch())", "self._take_up(self.read())"),
    Mutation("the election request is watched once only", "work.preferred_election:PreferredElection.watch",
             "self.serve(self.watch())", "self.serve(self.read())"),
    Mutation("ISR changes are watched once only", "work.notifications:Notifications._on_isr_changes",
             "paths = self.watch_isr_changes()",
             "paths = [f'{IsrChangeZnode.PATH}/{n}' for n in self.session.children(IsrChangeZnode.PATH)]"),
    Mutation("the ISR of a moving partition is not watched", "work.reassignment:Reassignment._read_and_watch",
             "for p in unwatched], fired)", "for p in unwatched])"),
    # --- brokers
    Mutation("a broker that bounced is not noticed", "work.broker_changes:BrokerChanges._apply",
             "if (current[b].epoch or 0) > (known[b].epoch or 0)", "if False"),
    Mutation("a broker that starts is not told the metadata", "work.broker_changes:BrokerChanges._on_startup",
             "self.batch.add_metadata(context.leadership)", "pass"),
    Mutation("a broker that starts is not told its roles", "work.broker_changes:BrokerChanges._on_startup",
             "self.replicas.move(context.replicas_on(sorted(brokers), ReplicaStatus.ONLINE), ReplicaStatus.ONLINE)", "pass"),
    Mutation("partitions without leader are not retried", "work.broker_changes:BrokerChanges._on_startup",
             "self.partitions.bring_online()", "pass"),
    Mutation("a broker that dies keeps its leaderships", "work.broker_changes:BrokerChanges.on_replicas_lost",
             "self.partitions.move(leaderless, PartitionStatus.OFFLINE)", "pass"),
    Mutation("ISR notifications are not removed", "work.notifications:Notifications._on_isr_changes",
             "self.zookeeper.delete(paths)", "pass"),
    Mutation("changed ISRs are not passed on", "work.topic_changes:TopicChanges._create",
             "self.partitions.move(created, PartitionStatus.ONLINE)", "pass"),
    # --- reassignment
    Mutation("step 1 is left out", "work.reassignment:Reassignment._prepare",
             "self._write_assignments({p: r for p, r in wanted.items() if p not in context.moves})", "set(wanted)"),
    Mutation("failover does not resume moves of topics' nodes", "work.reassignment:Reassignment.note",
             "if move.is_moving", "if False"),
    Mutation("failover forgets replicas to be dropped", "work.reassignment:Reassignment.note",
             "self.dropped.note(partition, move.dropped)", "pass"),
    Mutation("what a replaced move was adding is not deleted", "work.requested_moves:RequestedMoves._go_on",
             "self.dropped.drop(stored)", "pass"),
    Mutation("a request leaves the entry of the node", "work.requested_moves:RequestedMoves._store",
             "if by_request else []", "if False else []"),
    Mutation("a broker that was away is not told what to drop", "work.reassignment:Reassignment.on_brokers_started",
             "self.dropped.on_brokers_started(brokers)", "pass"),
    Mutation("step 2 is left out", "work.reassignment:Reassignment._prepare", "self._raise_epochs(wanted)", "pass"),
    Mutation("step 3 is left out", "work.reassignment:Reassignment._prepare",
             "self.replicas.move({p: brokers for p, brokers in new.items() if brokers}, ReplicaStatus.NEW)", "pass"),
    Mutation("step 4 does not wait", "work.reassignment:Reassignment._drive",
             "if set(context.reassigning[partition]) <= isr", "if True"),
    Mutation("step 7 elects nobody", "work.reassignment:Reassignment._finish",
             "electing = [", "electing = [] and ["),
    Mutation("step 8 is left out", "work.reassignment:Reassignment._finish",
             "stopped = self.replicas.move({p: brokers for p, brokers in old.items() if brokers}, ReplicaStatus.OFFLINE)",
             "stopped = dict(old); [context.set_replica_status(p, b, ReplicaStatus.OFFLINE) for p in old for b in old[p]]"),
    Mutation("step 9 sends nothing", "work.reassignment:Reassignment._finish",
             "self.replicas.move({p: b for p, b in ready.items() if b}, ReplicaStatus.DELETION_STARTED)",
             "[context.set_replica_status(p, b, ReplicaStatus.DELETION_STARTED) for p in ready for b in ready[p]]"),
    Mutation("step 10 does not wait for step 9", "work.reassignment:Reassignment._finish",
             "self._conclude([p for p, brokers in ready.items() if not brokers])", "self._conclude(list(ready))"),
    Mutation("step 10 comes before step 8", "work.reassignment:Reassignment._finish",
             "led |= self._raise_epochs({p: both[p] for p in partitions if p not in electing})",
             "led |= self._raise_epochs({p: both[p] for p in partitions if p not in electing}); "
             "self._write_assignments({p: rar[p] for p in led})"),
    Mutation("step 10 is left out", "work.reassignment:Reassignment._conclude",
             "self._write_assignments(done)", "set(done)"),
    Mutation("step 11 is left out", "work.reassignment:Reassignment._conclude", "self._remove_entries(done, done)", "{}"),
    Mutation("a dead broker's answer is waited for", "work.reassignment:Reassignment.on_brokers_lost",
             "for broker in brokers:", "for broker in ():"),
    Mutation("a broker out of reach is never told to delete", "work.reassignment:Reassignment.on_brokers_started",
             "self._tell_again(brokers)", "pass"),
    Mutation("a reassignment does not go on when its broker starts", "work.reassignment:Reassignment.on_brokers_started",
             "self._drive(waiting, prepare=True)", "pass"),
    Mutation("a reassignment does not give way to a deletion", "work.reassignment:Reassignment.give_up",
             "if stuck:", "if False:"),
    Mutation("what was made during the failover is refused", "work.topic_changes:TopicChanges.catch_up",
             "topics = sorted(", "topics = [] and sorted("),
    # --- deletion
    Mutation("clients are not told of a deletion", "telling.request_batch:RequestBatch._metadata_of",
             "_BEING_DELETED if context.is_deleting(partition) else leader", "leader"),
    Mutation("a deletion does not wait for the answers", "work.topic_deletion:TopicDeletion.on_answer",
             "self.resume({p.topic for p in asked if not self._outstanding.get(p.topic)})",
             "[self._complete(t, context.partitions_of(t)) for t in {p.topic for p in asked} if t in context.deleting]"),
    Mutation("a failed deletion counts as done", "work.topic_deletion:TopicDeletion.on_answer",
             "if answer.error_code or codes.get(p, 0)]", "if False]"),
    Mutation("a deletion is not resumed when the broker is back", "work.topic_deletion:TopicDeletion.resume_after_change",
             "self.resume(again)", "pass"),
    Mutation("a deletion does not fail with its broker", "work.broker_changes:BrokerChanges.on_replicas_lost",
             "self.deletion.fail(", "dict("),
    Mutation("the mark of a deletion stays", "work.topic_deletion:TopicDeletion._complete",
             "self.zookeeper.delete_as_read({mark: read[mark]})", "pass"),
    # --- preferred election
    Mutation("the election request stays", "work.preferred_election:PreferredElection._delete",
             "self.zookeeper.delete_as_read({PreferredElectionZnode.PATH: request.node})", "pass"),
    Mutation("the rebalance runs once only", "work.rebalance:Rebalance._tick", "if not self._is_stopped:", "if False:"),
)  # fmt: skip


class StaleMutationError(Exception):
    """The text to be replaced is not in the function any more."""


def find(target: str) -> tuple[Any, str]:
    """Return the module or class that holds the function, and the function's name in it."""
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module if module.startswith("kafkatool.") else _CONTROLLER + module)
    *classes, name = path.split(".")
    return functools.reduce(getattr, classes, owner), name


def _mutated(function: Callable[..., Any], mutation: Mutation) -> Callable[..., Any]:
    source = textwrap.dedent(inspect.getsource(function))
    if mutation.old not in source:
        raise StaleMutationError(f"{mutation.name}: {mutation.target} has no {mutation.old!r}")
    code = compile(source.replace(mutation.old, mutation.new), f"<{mutation.name}>", "exec")
    namespace = dict(function.__globals__)
    exec(code, namespace)
    made: Callable[..., Any] = namespace[function.__name__]
    return made


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Put the mutation in for as long as the block lasts, also where other modules have imported the function."""
    owner, name = find(mutation.target)
    original = inspect.getattr_static(owner, name)
    mutated = _mutated(original, mutation)
    places = [(owner, name)]
    if inspect.ismodule(owner):
        users = ("failover", "worker", "deciding.partition_machine", "deciding.replica_machine")
        modules = [importlib.import_module(_CONTROLLER + m) for m in users]
        places += [(m, name) for m in modules if m is not owner and getattr(m, name, None) is original]
    for place, attribute in places:
        setattr(place, attribute, mutated)
    try:
        yield
    finally:
        for place, attribute in places:
            setattr(place, attribute, original)
