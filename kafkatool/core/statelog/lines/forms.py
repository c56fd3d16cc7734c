"""Every message Kafka 0.8 to 4.1 writes to state-change.log, as a table of templates, and the events they tell of.

Ids and texts are those of the specification (state-change-log, sections 3 to 5, 10 and 11): A = 0.8 to 0.11, B = 1.0 to
2.x, C = 2.6 to 2.8 where it differs from B, D = 3.0 to 3.9 where it differs from C, E = without ZooKeeper. A template
is the message without its actor ("Broker 1 ", "[Controller id=1 epoch=3] "); what varies stands in braces and is spelled
in PLACEHOLDERS. No template contains a digit outside a placeholder: recognition may therefore be cached for lines that
differ in digits only (see ``shapes``).

Lines that only the first versions without ZooKeeper wrote ("Metadata batch ..." of 2.8) are left out on purpose: they
are of unknown form here.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

TOPIC = r"[a-zA-Z0-9._-]{1,249}"

ZOOKEEPER, KRAFT = "zookeeper", "kraft"
"""How a cluster is run."""

TOPIC_ID = r"[A-Za-z0-9_-]{22}"

LEADERSHIP = (
    r"\(Leader:(?P<leader>-?\d+),ISR:(?P<isr>[\d,]*)(?:,LeaderRecoveryState:(?P<recovery>\w+))?"
    r",LeaderEpoch:(?P<leader_epoch>-?\d+)(?:,ZkVersion:(?P<partition_epoch>-?\d+))?"
    r",ControllerEpoch:(?P<state_epoch>-?\d+)\)",
    r"LeaderAndIsr\(leader=(?P<leader>-?\d+), leaderEpoch=(?P<leader_epoch>\d+), "
    r"isr(?:WithBrokerEpoch)?=List\((?P<isr>(?:[\d, ]|BrokerState\(brokerId=\d+, brokerEpoch=-?\d+\))*)\)"
    r"(?:, leaderRecoveryState=(?P<recovery>\w+))?, (?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+)\)",
    r"PartitionState\((?:topicName='[^']*', )?(?:partitionIndex=\d+, )?controllerEpoch=(?P<state_epoch>-?\d+), "
    r"leader=(?P<leader>-?\d+), leaderEpoch=(?P<leader_epoch>-?\d+), isr=\[?(?P<isr>[\d, ]*?)\]?, "
    r"(?:zkVersion|partitionEpoch)=(?P<partition_epoch>-?\d+), replicas=\[?(?P<replicas>[\d, ]*?)\]?"
    r"(?=\)|, (?:isNew|offlineReplicas|addingReplicas)=)"
    r"(?:, addingReplicas=\[(?P<adding>[\d, ]*)\], removingReplicas=\[(?P<removing>[\d, ]*)\])?"
    r"(?:, isNew=\w+)?(?:, leaderRecoveryState=(?P<recovery>\d+))?",
    r"starts at leader epoch (?P<leader_epoch>\d+) from offset -?\d+ with "
    r"(?:partition epoch (?P<partition_epoch>\d+)(?:,| and) )?high watermark -?\d+"
    r"(?:,? ISR \[(?P<isr>[\d, ]*)\],? adding ?[rR]eplicas \[(?P<adding>[\d, ]*)\]"
    r"(?: and)? removing ?[rR]eplicas \[(?P<removing>[\d, ]*)\] ?(?:\(under-min-isr\))?)?"
    r"(?:\. Current leader is (?P<leader>-?\d+))?",
)
"""The spellings of leader, ISR and epochs: payloads LI, LA, PS and PK, and the start of a leader or follower.

What Kafka calls zkVersion, ZkVersion and partitionEpoch is one number, the partition epoch: it rises with every change.
"""


def _anonymous(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


_LI, _LA, _PS = (_anonymous(pattern) for pattern in LEADERSHIP[:3])

PLACEHOLDERS: Mapping[str, str] = {
    "tp": rf"(?:\[{TOPIC}, ?\d+\]|{TOPIC}-\d+)",
    "n": r"-?\d+",
    "state": r"[A-Za-z]+",
    "replicas": r"[\d, ]*",
    "brokers": r"[A-Za-z]+\([\d, ]*\)",  # Set(1, 2), from five on HashSet(...)
    "bool": r"(?:true|false)",
    "name": r"\w+",
    "role": r"become-(?:leader|follower)",
    "LI": _LI,
    "LA": _LA,
    "PS": rf"(?:\w*{_PS}.*?\)|\(LeaderAndIsrInfo:{_LI},ReplicationFactor:\d+\),AllReplicas:[\d,]*\))",
    "kind": r"(?:LeaderAndIsr|UpdateMetadata)",
    "stop": r"StopReplicaPartitionState\(.*\)",
    "by": r"from controller \d+ epoch \d+",
    "last": r"(?: \(last update controller epoch -?\d+\))?",
    "new_leader": r"(?: with leader -?\d+)?",
    "text": r".*",
    "id": rf"(?:Some\({TOPIC_ID}\)|None|{TOPIC_ID})",
    "maybe": r"(?:Some\(-?\d+\)|None|-?\d+)",
    "previous": r"(?:(?:Some\(-?\d+\)|None) and previous leader )?",
    "under_min": r"(?: (?:\(under-min-isr\))?)?",
    "local": r"(?:leader|follower)",
    "disk": r"(?:disk|a storage|storage)",
    "not_implemented": r"(?: Leader log recovery is not implemented\.)?",
    "stop_sign": r"\.?",
}


class Form(NamedTuple):
    """One message form: its id in the specification, the event it tells of, and the expression its body fits."""

    id: str
    event: str
    pattern: re.Pattern[str]

    @property
    def mode(self) -> str | None:
        """Return how the cluster is run that writes such a line: ZOOKEEPER or KRAFT; None: either."""
        return _mode(self.id)


_OF_BOTH_MODES = frozenset({"C33", "C34", "D6", "D7", "D8"})

_TEMPLATES = """
A1  partition_created         changed partition {tp} state from {state} to NewPartition with assigned replicas {replicas}
A2  partition_online          changed partition {tp} from {state} to OnlinePartition with leader {n}
A3  partition_offline         changed partition {tp} state from {state} to OfflinePartition
A3  partition_removed         changed partition {tp} state from {state} to NonExistentPartition
A4  partition_change_failed   initiated state change for partition {tp} from {state} to {state} failed
A5  partition_change_failed   encountered error during state change of partition {tp} from New to Online, assigned replicas are [{replicas}], live brokers are [{brokers}]. No assigned replica is alive.
A6  partition_change_failed   encountered error while changing partition {tp}'s state from New to Online since LeaderAndIsr path already exists with value {text} and controller epoch {n}
A7  election_started          started leader election for partition {tp}
A8  election_aborted          aborted leader election for partition {tp} since the LeaderAndIsr path was already written by another controller. This probably means that the current controller {n} went through a soft failure and another controller was elected with epoch {n}.
A9  leader_elected            elected leader {n} for Offline partition {tp}
A10 election_failed           encountered error while electing leader for partition {tp} due to: {text}.
A11 replica_changed           changed state of replica {n} for partition {tp} from {state} to {state}
A12 replica_change_failed     initiated state change of replica {n} for partition {tp} from {state} to {state} failed
A13 response_received         received response {text} for a request sent to broker {text}
A14 leader_and_isr_sent       sending {role} LeaderAndIsr request {LI} to broker {n} for partition {tp}
A14 leader_and_isr_sent       sending {role} LeaderAndIsr request {LI} with correlationId {n} to broker {n} for partition {tp}
A15 update_metadata_sent      sending UpdateMetadata request {LI} to brokers {brokers} for partition {tp}
A15 update_metadata_sent      sending UpdateMetadata request {LI} to broker {n} for partition {tp}
A15 update_metadata_sent      sending UpdateMetadata request {LI} with correlationId {n} to broker {n} for partition {tp}
A16 reassignment_sent         sent LeaderAndIsr request {LI} with new assigned replica list {replicas} to leader {n} for partition being reassigned {tp}
A17 reassignment_send_failed  failed to send LeaderAndIsr request with new assigned replica list {replicas} to leader for partition being reassigned {tp}
A18 stop_replica_started      handling stop replica (delete={bool}) for partition {tp}
A19 stop_replica_ignored      ignoring stop replica (delete={bool}) for partition {tp} as replica doesn't exist on broker
A20 stop_replica_finished     finished handling stop replica (delete={bool}) for partition {tp}
A21 stale_controller          received stop replica request from an old controller epoch {n}. Latest known controller epoch is {n}
A21 stale_controller          received stop replica request from an old controller epoch {n}. Latest known controller epoch is %d {n}
A22 stale_controller          received update metadata request with correlation id {n} from an old controller {n} with epoch {n}. Latest known controller epoch is {n}
A23 leader_and_isr_received   received LeaderAndIsr request {PS} correlation id {n} {by} for partition {tp}
A24 stale_controller          ignoring LeaderAndIsr request from controller {n} with correlation id {n} since its controller epoch {n} is old. Latest known controller epoch is {n}
A25 leader_and_isr_ignored    ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} as itself is not in assigned replica list {replicas}
A26 leader_and_isr_ignored    ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} is not higher than the current leader epoch {n}
A26 leader_and_isr_ignored    ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} is old. Current leader epoch is {n}
A27 transition_started        handling LeaderAndIsr request correlationId {n} {by} starting the {role} transition for partition {tp}
A28 transition_skipped        skipped the become-leader state change after marking its partition as leader with correlation id {n} {by} for partition {tp} since it is already the leader for the partition.
A29 fetchers_stopped          stopped fetchers as part of {role} request {by} with correlation id {n} for partition {tp}
A30 leader_and_isr_failed     while processing LeaderAndIsr request correlationId {n} received {by} for partition {tp}
A31 transition_finished       completed LeaderAndIsr request correlationId {n} {by} for the {role} transition for partition {tp}
A32 transition_skipped        skipped the become-follower state change after marking its partition as follower with correlation id {n} {by} for partition {tp} since the new leader {n} is the same as the old leader
A33 leader_unavailable        received LeaderAndIsrRequest with correlation id {n} {by} for partition {tp} but cannot become follower since the new leader {n} is unavailable.
A34 log_truncated             truncated logs and checkpointed recovery boundaries for partition {tp} as part of become-follower request with correlation id {n} {by}
A35 fetcher_skipped           skipped the adding-fetcher step of the become-follower state change with correlation id {n} {by} for partition {tp} since it is shutting down
A36 fetcher_started           started fetcher to new leader as part of become-follower request {by} with correlation id {n} for partition {tp}
A37 leader_and_isr_failed     while processing LeaderAndIsr request with correlationId {n} received {by}
A38 metadata_deleted          deleted partition {tp} from metadata cache in response to UpdateMetadata request sent by controller {n} epoch {n} with correlation id {n}
A39 metadata_cached           cached leader info {PS} for partition {tp} in response to UpdateMetadata request sent by controller {n} epoch {n} with correlation id {n}
B1  partition_created         Changed partition {tp} state from {state} to NewPartition with assigned replicas {replicas}
B2  partition_online          Changed partition {tp} from {state} to OnlinePartition with state {LA}
B3  partition_offline         Changed partition {tp} state from {state} to OfflinePartition
B3  partition_removed         Changed partition {tp} state from {state} to NonExistentPartition
B4  partition_change_failed   failed to change state for partition {tp} from {state} to {state}
B5  replica_changed           Changed state of replica {n} for partition {tp} from {state} to {state}
B7  reassignment_sent         Sent LeaderAndIsr request {LI} with new assigned replica list {replicas} to leader {n} for partition being reassigned {tp}
B8  reassignment_send_failed  Failed to send LeaderAndIsr request with new assigned replica list {replicas} to leader for partition being reassigned {tp}
B9  response_error            Received error in {kind} response {text} from broker {n}
B10 replicas_marked_offline   Mark replicas {text} on broker {n} as offline
B11 response_received         Received response {text} for request {name} with correlation id {n} sent to broker {text}
B12 leader_and_isr_sent       Sending {role} LeaderAndIsr request {PS} to broker {n} for partition {tp}
B13 update_metadata_sent      Sending UpdateMetadata request {PS} to brokers {brokers} for partition {tp}
B14 stop_replica_started      Handling stop replica (delete={bool}) for partition {tp}
B14 stop_replica_ignored      Ignoring stop replica (delete={bool}) for partition {tp} as replica doesn't exist on broker
B14 stop_replica_finished     Finished handling stop replica (delete={bool}) for partition {tp}
B15 stale_controller          Received stop replica request from an old controller epoch {n}. Latest known controller epoch is {n}
B16 stop_replica_ignored      Ignoring stop replica (delete={bool}) for partition {tp} due to storage exception
B17 stale_controller          Received update metadata request with correlation id {n} from an old controller {n} with epoch {n}. Latest known controller epoch is {n}
B18 leader_and_isr_received   Received LeaderAndIsr request {PS} correlation id {n} {by} for partition {tp}
B19 stale_controller          Ignoring LeaderAndIsr request from controller {n} with correlation id {n} since its controller epoch {n} is old. Latest known controller epoch is {n}
B20 leader_and_isr_ignored    Ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} as the local replica for the partition is in an offline log directory
B20 leader_and_isr_ignored    Ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} as itself is not in assigned replica list {replicas}
B20 leader_and_isr_ignored    Ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} is not higher than the current leader epoch {n}
B21 transition_started        Handling LeaderAndIsr request correlationId {n} {by} starting the {role} transition for partition {tp}{new_leader}
B22 fetchers_stopped          Stopped fetchers as part of {role} request {by} with correlation id {n} for partition {tp}{last}
B23 transition_skipped        Skipped the become-leader state change after marking its partition as leader with correlation id {n} {by} for partition {tp}{last} since it is already the leader for the partition.
B24 transition_failed         Skipped the {role} state change with correlation id {n} {by} for partition {tp}{last}{new_leader} since the replica for the partition is offline due to {disk} error {text}
B25 leader_and_isr_failed     Error while processing LeaderAndIsr request correlationId {n} received {by} for partition {tp}
B25 leader_and_isr_failed     Error while processing LeaderAndIsr request with correlationId {n} received {by}
B26 transition_finished       Completed LeaderAndIsr request correlationId {n} {by} for the {role} transition for partition {tp}{new_leader}
B27 transition_skipped        Skipped the become-follower state change after marking its partition as follower with correlation id {n} {by} for partition {tp}{last} since the new leader {n} is the same as the old leader
B28 leader_unavailable        Received LeaderAndIsrRequest with correlation id {n} {by} for partition {tp}{last} but cannot become follower since the new leader {n} is unavailable.
B29 log_truncated             Truncated logs and checkpointed recovery boundaries for partition {tp} as part of become-follower request with correlation id {n} {by}
B30 fetcher_skipped           Skipped the adding-fetcher step of the become-follower state change with correlation id {n} {by} for partition {tp}{new_leader} since it is shutting down
B31 fetcher_started           Started fetcher to new leader as part of become-follower request {by} with correlation id {n} for partition {tp}
B32 metadata_deleted          Deleted partition {tp} from metadata cache in response to UpdateMetadata request sent by controller {n} epoch {n} with correlation id {n}
B33 metadata_cached           Cached leader info {PS} for partition {tp} in response to UpdateMetadata request sent by controller {n} epoch {n} with correlation id {n}
C6  isr_shrunk                Partition {tp} state changed to {LI} after removing replica {n} from the ISR as part of transition to OfflineReplica
C8  reassignment_sent         Sent LeaderAndIsr request {LI} with new replica assignment ReplicaAssignment({text}) to leader {n} for partition being reassigned {tp}
C9  reassignment_send_failed  Failed to send LeaderAndIsr request with new replica assignment ReplicaAssignment({text}) to leader for partition being reassigned {tp}
C10 response_error            Received error {name} in {kind} response {text} from broker {n}
C14 leader_and_isr_sent       Sending LeaderAndIsr request to broker {n} with {n} become-leader and {n} become-follower partitions
C15 update_metadata_sent      Sending UpdateMetadata request to brokers {brokers} for {n} partitions
C16 stop_replica_sent         Sending StopReplica request {stop} to broker {n} for partition {tp}
C17 stop_replica_sent         Sending StopReplica request for {n} replicas to broker {n}
C17 stop_replica_sent         Sending StopReplica request (delete = {bool}) for {n} replicas to broker {n}
C18 stop_replica_started      Handling StopReplica request correlationId {n} from controller {n} for {n} partitions
C19 stop_replica_received     Received StopReplica request {stop} correlation id {n} {by} for partition {tp}
C20 stale_controller          Ignoring StopReplica request from controller {n} with correlation id {n} since its controller epoch {n} is old. Latest known controller epoch is {n}
C21 stop_replica_ignored      Ignoring StopReplica request (delete={bool}) from controller {n} with correlation id {n} epoch {n} for partition {tp} as the local replica for the partition is in an offline log directory
C21 stop_replica_ignored      Ignoring StopReplica request (delete={bool}) from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} is smaller than the current leader epoch {n}
C21 stop_replica_ignored      Ignoring StopReplica request (delete={bool}) from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} matches the current leader epoch
C21 stop_replica_ignored      Ignoring StopReplica request (delete={bool}) from controller {n} with correlation id {n} epoch {n} for partition {tp} due to an unexpected {text} exception: {text}
C23 leader_and_isr_started    Handling LeaderAndIsr request correlationId {n} from controller {n} for {n} partitions
C23 leader_and_isr_finished   Finished LeaderAndIsr request in {n}ms correlationId {n} from controller {n} for {n} partitions
C24 leader_and_isr_received   Received LeaderAndIsr request {PS} correlation id {n} {by}
C25 leader_and_isr_ignored    Ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} is smaller than the current leader epoch {n}
C25 leader_and_isr_ignored    Ignoring LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} for partition {tp} since its associated leader epoch {n} matches the current leader epoch
C27 fetchers_stopped          Stopped fetchers as part of LeaderAndIsr request correlationId {n} {by} as part of the {role} transition for {n} partitions
C27 fetchers_stopped          Stopped fetchers as part of become-follower request {by} with correlation id {n} for {n} partitions
C32 metadata_updated          Add {n} partitions and deleted {n} partitions from metadata cache in response to UpdateMetadata request sent by controller {n} epoch {n} with correlation id {n}
C33 leader_started            Leader {tp} starts at leader epoch {n} from offset {n} with high watermark {n} ISR [{replicas}] addingReplicas [{replicas}] removingReplicas [{replicas}]. Previous leader epoch was {n}.
C34 follower_started          Follower {tp} starts at leader epoch {n} from offset {n} with high watermark {n}. Previous leader epoch was {n}.
C35 zookeeper_failed          A ZooKeeper client exception has occurred and makeLeader will be skipping the state change for the partition {tp} with leader epoch: {n}{stop_sign}
C35 zookeeper_failed          A ZooKeeper client exception has occurred. makeFollower will be skipping the state change for the partition {tp} with leader epoch: {n}{stop_sign}
C35 topic_id_mismatch         Topic Id in memory: {text} does not match the topic Id for partition {tp} provided in the request: {text}.
D6  leader_started            Leader {tp} with topic id {id} starts at leader epoch {n} from offset {n} with partition epoch {n}, high watermark {n}, ISR [{replicas}], adding replicas [{replicas}] and removing replicas [{replicas}]{under_min}. Previous leader {previous}epoch was {n}.
D7  follower_started          Follower {tp} starts at leader epoch {n} from offset {n} with partition epoch {n} and high watermark {n}. Current leader is {n}. Previous leader {previous}epoch was {n}.
D8  leader_recovering         The topic partition {tp} was marked as RECOVERING.{not_implemented} Marking the topic partition as RECOVERED.
D9  topic_id_mismatch         Topic ID in memory: {text} does not match the topic ID for partition {tp} received: {text}.
D10 topic_id_assigned         Updating log for {tp} to assign topic ID {id} from LeaderAndIsr request from controller {n} with correlation id {n} epoch {n}
D11 topic_id_removed          Updating PartitionFetchState for {tp} to remove log topic ID {id} since LeaderAndIsr request from controller {n} with correlation id {n} epoch {n} did not contain a topic ID
D12 fetcher_skipped           Skipped the update topic ID step of the become-follower state change with correlation id {n} {by} for partition {tp} since it is shutting down
D13 leader_and_isr_failed     Error while processing LeaderAndIsr request with correlationId {n} received {by} when trying to update topic IDs in the fetchers
D14 brokers_changed           Adding brokers {text}, removing brokers {text}.
D15 replicas_marked_offline   Found {text} on broker {n} as offline
D16 response_error            Received error {name} in StopReplica response {text} from broker {n}
D16 response_error            Received error {name} in StopReplica request for partition {tp} from broker {n}
D17 strays_found              While handling full LeaderAndIsr request from KRaft controller {n} with correlation id {n}, found {n} stray partition(s).
D18 metadata_deleted          Removing topic {text} with ID {id} from the metadata cache since the full UMR did not include it.
D18 metadata_deleted          Removing {n} partition(s) from topic {text} with ID {id} from the metadata cache since the full UMR did not include them.
D18 metadata_failed           Error: {text}
D19 metadata_unexpected       Received UpdateMetadataRequest with Type=FULL ({n}), {text}
E1  transition_batch          Transitioning {n} partition(s) to local {local}s.
E2  replica_created           Creating new partition {tp} with topic id {id}.
E3  replica_created           Creating new partition {tp} with topic id {id}.A topic with the same name but different id exists but it resides in an offline log directory.
E4  replica_created           Expected partition {tp} with topic id {id} to exist, but it was missing. Creating...
E5  transition_failed         Unable to bring up new local {local} {tp} with topic id {id} because it resides in an offline log directory.
E6  partition_changed         Skipped the become-leader state change for {tp} with topic id {id} and partition state {PS} since it is already the leader with leader epoch {n}. Current high watermark {n}, ISR [{replicas}], adding replicas [{replicas}] and removing replicas [{replicas}].
E7  partition_changed         Skipped the become-follower state change for {tp} with topic id {id} and partition state {PS} since it is already a follower with leader epoch {n}.
E8  partition_change_ignored  Skipped the {role} state change for {tp} with topic id {id} and partition state {PS} since the {local} is already at a newer partition epoch {n}.
E9  fetchers_stopped          Stopped fetchers as part of become-follower for {n} partitions
E9  fetcher_started           Started fetchers as part of become-follower for {n} partitions
E10 replicas_removed          Deleting {n} partition(s).
E11 replica_removal_failed    Unable to delete replica {tp} because {text}
E12 broker_stopping           Stopped fetchers as part of controlled shutdown for {n} partitions
E13 transition_failed         Skipped the {role} state change for {tp} with topic id {id} due to a storage error {text}
E14 fetcher_failed            Unable to start fetching {tp} with topic ID {id} due to {text}
E15 leader_unavailable        Unable to start fetching {tp} with topic ID {id} from leader {maybe} because it is not alive.
E16 replica_removal_failed    Unable to delete stray replica {tp} because {text}
E17 transition_skipped        Skipped the become-leader state change for {tp} with topic id {id} because this partition is already a local leader.
E17 partition_changed         Skipped the become-follower state change after marking its partition as follower for partition {tp} with id {id} and partition state {PS}.
E17 transition_failed         Skipped the {role} state change for {tp} with topic id {id} due to disk error {text}
E17 fetcher_skipped           Unable to start fetching {tp} with topic ID {id} because the replica manager is shutting down.
"""  # noqa: E501 -- a table reads best with one row a line


def _mode(form_id: str) -> str | None:
    return None if form_id in _OF_BOTH_MODES else KRAFT if form_id[0] == "E" else ZOOKEEPER


def _rows() -> list[list[str]]:
    return [row.split(maxsplit=2) for row in _TEMPLATES.strip().splitlines()]


def _compile(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)  # literal, placeholder, literal, ...
    pattern = "".join(PLACEHOLDERS[part] if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.compile(pattern, re.ASCII | re.DOTALL)


EVENTS: frozenset[str] = frozenset(event for _, event, _ in _rows())
"""Names that ``--event`` takes."""


@cache
def all_forms() -> Mapping[str, list[Form]]:
    """Return all forms by the first word of the body, in the table's order. Compiled on first use: that takes 60 ms."""
    forms: dict[str, list[Form]] = {}
    for form_id, event, template in _rows():
        forms.setdefault(template.split()[0], []).append(Form(form_id, event, _compile(template)))
    return forms


def find_form(body: str) -> Form | None:
    """Return the form a message body (actor and logger taken off) fits entirely, or None: unknown form."""
    candidates = all_forms().get(body.partition(" ")[0], ())
    return next((form for form in candidates if form.pattern.fullmatch(body)), None)
