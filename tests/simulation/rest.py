"""What must be true once the faults have stopped and time has passed (liveness)."""

from typing import Any

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
)
from tests.simulation.cluster import Cluster
from tests.simulation.life import Life
from tests.simulation.process import Process
from tests.simulation.realm import Realm

_REASSIGNED = "reassignment of {} to {} was neither done nor refused: it is assigned to {}"


def problems(cluster: Cluster) -> list[str]:
    """Say why the cluster is not as it should be; empty: it is."""
    found = problems_of_ruling(cluster)
    if found:
        return found
    alive = sorted(p.id for p in cluster.alive())
    if cluster.registered() != alive:
        return [f"brokers {alive} run, {cluster.registered()} are registered"]
    for partition in cluster.partitions():
        found += _partition(cluster, partition)
    for topic in cluster.topics():
        node = cluster.invariants.topic(topic)
        if node is not None and node.moves:
            found.append(f"topic {topic} still tells of moves: {node.moves}")
    found += _requests(cluster)
    for process in cluster.alive():
        found += _broker(cluster, process)
    return found


def problems_of_ruling(cluster: Realm[Any]) -> list[str]:
    """Say whether one controller rules that all know, and whose memory agrees with ZooKeeper."""
    ruling = [p for p in cluster.alive() if p.worker.term is not None]
    node = cluster.server.nodes.get(ControllerZnode.PATH)
    if len(ruling) != 1 or node is None:
        return [f"controllers are {[p.id for p in ruling]}, /controller holds {node and node.data!r}"]
    process, term = ruling[0], ruling[0].worker.term
    assert term is not None
    found = []
    if node.ephemeral_owner != process.client.session:
        found.append(f"{process.id} rules, /controller belongs to session {node.ephemeral_owner}")
    if term.context.epoch != cluster.invariants.controller_epoch():
        found.append(f"{process.id} rules by epoch {term.context.epoch}")
    if unaware := [p.id for p in cluster.alive() if p.worker.known_id != process.id]:
        found.append(f"brokers {unaware} do not know that {process.id} rules")
    return found or _context(cluster, process)


def _context(cluster: Realm[Any], process: Life) -> list[str]:
    """Compare the controller's memory with ZooKeeper: gauges and the next decision rest on it."""
    term = process.worker.term
    assert term is not None
    context, found = term.context, []
    if sorted(context.brokers) != cluster.registered():
        found.append(f"the controller knows brokers {sorted(context.brokers)}")
    if sorted(context.assignments) != cluster.topics():
        found.append(f"the controller knows topics {sorted(context.assignments)}, there are {cluster.topics()}")
    for partition in cluster.partitions():
        assigned = cluster.invariants.assignment(partition.topic)[partition.partition]
        if context.replicas(partition) != assigned:
            found.append(f"the controller takes {context.replicas(partition)} for the replicas of {partition}")
        if context.status_of(partition) is not PartitionStatus.ONLINE:
            found.append(f"{partition} is {context.status_of(partition)} to the controller")
        status = {b: context.replica_status_of(partition, b) for b in assigned}
        if any(s is not ReplicaStatus.ONLINE for s in status.values()):
            found.append(f"replicas of {partition} are {status} to the controller")
    if context.reassigning or context.moves or context.origins or context.dropped:
        found.append(f"moving: {context.reassigning} {context.moves} {context.origins} {context.dropped}")
    if context.electing or context.shutting_down:
        found.append(f"under way: {context.electing} {context.shutting_down}")
    return found


def _partition(cluster: Cluster, partition: TopicPartition) -> list[str]:
    state = cluster.invariants.state(partition)
    replicas = cluster.invariants.assignment(partition.topic)[partition.partition]
    if state is None or state.leader not in cluster.registered() or set(state.isr) != set(replicas):
        return [f"{partition} of {replicas} is {state}"]
    found = []
    for broker in replicas:
        role = cluster.processes[broker].replicas.roles.get(partition)
        if role is None or (role.leader, role.leader_epoch) != (state.leader, state.leader_epoch) or not role.fetching:
            found.append(f"broker {broker} believes of {partition}: {role}; it is {state}")
    preferred = replicas[0]
    if cluster.properties["auto.leader.rebalance.enable"] == "true" and state.leader != preferred:
        found.append(f"{partition} is led by {state.leader}, should be by {preferred}")
    return found


def _requests(cluster: Cluster) -> list[str]:
    nodes, found = cluster.server.nodes, []
    for path in (ReassignmentZnode.PATH, PreferredElectionZnode.PATH):
        if path in nodes:
            found.append(f"{path} is still there: {nodes[path].data!r}")
    for path in (IsrChangeZnode.PATH, LogDirEventZnode.PATH):
        if names := cluster.server.children(path):
            found.append(f"nobody takes note of {path}: {names}")
    if cluster.properties["delete.topic.enable"] == "true" and (
        left := cluster.server.children(DeleteTopicsZnode.PATH)
    ):
        found.append(f"topics still to be deleted: {left}")
    for partition, (asked_at, wanted) in cluster.reassignments.items():
        assigned = cluster.invariants.assignment(partition.topic).get(partition.partition)
        refused = cluster.refusals.reassignments.get(partition, -1.0) >= asked_at
        if assigned is not None and assigned != wanted and not refused and not cluster.unanswered[partition]:
            found.append(_REASSIGNED.format(partition, wanted, assigned))
    return found


def _broker(cluster: Cluster, process: Process) -> list[str]:
    found = []
    replicas = process.replicas
    hosted = {
        p for p in cluster.partitions() if process.id in cluster.invariants.assignment(p.topic).get(p.partition, ())
    }
    excused = {
        p
        for (p, broker), epoch in cluster.invariants.left_behind.items()
        if broker == process.id and epoch != cluster.invariants.controller_epoch()
    }
    if orphans := [p for p in replicas.disk.directories if p not in hosted and p not in excused]:
        found.append(f"broker {process.id} keeps replicas nobody wants: {', '.join(map(str, orphans))}")
    if orphans := [p for p in replicas.roles if p not in hosted and p not in excused]:
        found.append(f"broker {process.id} runs replicas nobody wants: {', '.join(map(str, orphans))}")
    if list(replicas.known_brokers) != cluster.registered():
        found.append(f"broker {process.id} knows of brokers {replicas.known_brokers}")
    metadata = {}
    for partition in cluster.partitions():
        if (state := cluster.invariants.state(partition)) is not None and state.leader is not None:
            assigned = cluster.invariants.assignment(partition.topic)[partition.partition]
            metadata[partition] = (state.leader, state.leader_epoch, assigned)
    for partition in {**metadata, **replicas.metadata}:
        right = metadata.get(partition)
        if right != replicas.metadata.get(partition) and (right or not _missed_the_end(cluster, process, partition)):
            found.append(
                f"broker {process.id} tells clients of {partition}: {replicas.metadata.get(partition)}, "
                f"right is {right}"
            )
    return found


def _missed_the_end(cluster: Cluster, process: Process, partition: TopicPartition) -> bool:
    """Tell whether an earlier controller deleted the topic, or while the broker was not registered (docs/simulation.md)."""
    epoch, known = cluster.invariants.deleted.get(partition, (0, {}))
    node = cluster.server.nodes[BrokerZnode.path(process.id)]
    return epoch != cluster.invariants.controller_epoch() or node.czxid != known.get(process.id)
