"""What each property of a broker is for, in a line, and its type in Kafka's words: DescribeConfigs tells both (KIP-569)."""

import enum
from collections.abc import Mapping
from typing import Final


class ConfigType(enum.IntEnum):
    """The type of a setting, as DescribeConfigs says it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


LONGS: Final = frozenset(
    {
        "connections.max.idle.ms",
        "controlled.shutdown.retry.backoff.ms",
        "follower.replication.throttled.rate",
        "leader.imbalance.check.interval.seconds",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.message.timestamp.difference.max.ms",
        "log.retention.bytes",
        "log.retention.check.interval.ms",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.delete.delay.ms",
        "offsets.retention.check.interval.ms",
        "quota.consumer.default",
        "quota.producer.default",
        "replica.high.watermark.checkpoint.interval.ms",
        "replica.lag.time.max.ms",
    }
)
"""The whole numbers that are of 64 bits in Kafka; the others are of 32, but for the two of 16."""

SHORTS: Final = frozenset(
    {"offsets.commit.required.acks", "offsets.topic.replication.factor", "transaction.state.log.replication.factor"}
)

MEANINGS: Final[Mapping[str, str]] = {
    "advertised.listeners": "the addresses that clients and other brokers are told to use",
    "allow.everyone.if.no.acl.found": "may everybody do what no ACL is about",
    "authorizer.class.name": "Kafka's name of what goes by the ACLs in ZooKeeper; empty: everybody may do all",
    "auto.create.topics.enable": "may a client's question about an unknown topic create it",
    "auto.leader.rebalance.enable": "does the controller give leadership back to preferred replicas from time to time",
    "background.threads": "threads for work that no request waits for",
    "broker.id": "this broker's number; -1: as in meta.properties, else a new one",
    "broker.id.generation.enable": "may a broker without a number be given one by ZooKeeper",
    "broker.rack": "the rack this broker stands in; replicas are spread over racks",
    "connection.failed.authentication.delay.ms": "how long who failed to log in waits for the answer, ms",
    "connections.max.idle.ms": "a connection without requests is closed after this time",
    "controlled.shutdown.enable": "are leaders moved away before this broker stops",
    "controlled.shutdown.max.retries": "how often the controller is asked again to move leaders away",
    "controlled.shutdown.retry.backoff.ms": "wait before the controller is asked again",
    "controller.socket.timeout.ms": "longest wait of the controller for a broker's answer",
    "default.replication.factor": "replicas of a topic whose maker names no number",
    "delete.topic.enable": "may topics be deleted",
    "fetch.max.bytes": "bytes of the answer to a fetch of versions 0 to 2, which cannot say themselves",
    "fetch.purgatory.purge.interval.requests": "completed fetches that may lie in the purgatory before it is swept",
    "follower.replication.throttled.rate": "bytes a second that this broker's throttled replicas may copy",
    "group.initial.rebalance.delay.ms": "wait of a new group for further members",
    "group.max.session.timeout.ms": "longest session a member may ask for",
    "group.max.size": "members a group may have",
    "group.min.session.timeout.ms": "shortest session a member may ask for",
    "inter.broker.listener.name": "the listener that brokers use among each other",
    "inter.broker.protocol.version": "the release whose requests this broker sends to others",
    "kt.authentication.timeout.ms": "how long TLS handshake and login may take together, ms",
    "kt.conversion.max.bytes": "bytes of records that may wait in memory, turned into the format of older consumers",
    "kt.fault.socket": "where a test tells this broker which faults to meet",
    "kt.fence.on.zk.session.loss": "does a broker without ZooKeeper session stop answering producers",
    "kt.halt.on.truncation.below.hw": "does a broker stop rather than cut what was acknowledged",
    "kt.jaas.config": "the JAAS file with the users of PLAIN and the broker's own login",
    "kt.log.dir": "where state-change.log, controller.log and authorizer.log go",
    "kt.max.unauthenticated.connections": "connections that may not have logged in yet; a quarter of them from one address",
    "kt.validate.records": "full: every produced batch is unpacked and checked before it is appended",
    "kt.zookeeper.max.packet.bytes": "largest packet that ZooKeeper takes, its jute.maxbuffer",
    "leader.imbalance.check.interval.seconds": "time between two looks at who leads what",
    "leader.imbalance.per.broker.percentage": "share of leaders away from a broker that starts the rebalance",
    "leader.replication.throttled.rate": "bytes a second that followers may copy of this broker's throttled replicas",
    "listeners": "the addresses this broker listens on",
    "log.cleaner.backoff.ms": "sleep of the cleaner when there is nothing to compact",
    "log.cleaner.dedupe.buffer.size": "bytes for the cleaner's table of keys",
    "log.cleaner.enable": "are logs compacted at all",
    "log.cleaner.io.max.bytes.per.second": "bytes a second that the cleaner reads and writes",
    "log.dirs": "the directories that hold the logs",
    "log.flush.offset.checkpoint.interval.ms": "time between two writes of the recovery points",
    "log.flush.scheduler.interval.ms": "time between two looks for logs to flush",
    "log.flush.start.offset.checkpoint.interval.ms": "time between two writes of the log start offsets",
    "log.retention.check.interval.ms": "time between two looks for segments to delete",
    "max.connections": "connections the broker may have; a listener may have a limit of its own",
    "max.connections.per.ip": "connections one address may have",
    "max.connections.per.ip.overrides": "the same for single addresses, as host:number",
    "max.incremental.fetch.session.cache.slots": "fetch sessions kept",
    "num.io.threads": "threads that handle requests",
    "num.network.threads": "threads of each listener that read requests and write answers",
    "num.partitions": "partitions of a topic whose maker names no number",
    "num.recovery.threads.per.data.dir": "threads of each log directory that open logs at start",
    "num.replica.fetchers": "threads that copy from each leading broker",
    "offset.metadata.max.bytes": "longest text beside a committed offset",
    "offsets.commit.required.acks": "replicas that must have a commit before it is answered, -1 all in sync",
    "offsets.commit.timeout.ms": "longest wait for them",
    "offsets.load.buffer.size": "bytes read at once while groups are loaded",
    "offsets.retention.check.interval.ms": "time between two looks for expired offsets",
    "offsets.retention.minutes": "age at which the offsets of an empty group expire",
    "offsets.topic.compression.codec": "codec of the offsets topic's batches, 0 none",
    "offsets.topic.num.partitions": "partitions of the offsets topic when it is made",
    "offsets.topic.replication.factor": "replicas of the offsets topic when it is made",
    "offsets.topic.segment.bytes": "segment size of the offsets topic when it is made",
    "producer.purgatory.purge.interval.requests": "completed produces that may lie in the purgatory before it is swept",
    "queued.max.requests": "requests that may wait for a handler before no more are read",
    "quota.consumer.default": "bytes a second for each consumer that no quota names",
    "quota.producer.default": "bytes a second for each producer that no quota names",
    "quota.window.num": "windows that a client's rate is measured over",
    "quota.window.size.seconds": "length of one of them",
    "replica.fetch.backoff.ms": "wait after a failed fetch of a follower",
    "replica.fetch.max.bytes": "bytes of one partition in a follower's fetch",
    "replica.fetch.min.bytes": "bytes for which a follower's fetch waits",
    "replica.fetch.response.max.bytes": "bytes of all partitions in a follower's fetch",
    "replica.fetch.wait.max.ms": "longest wait of a follower's fetch",
    "replica.high.watermark.checkpoint.interval.ms": "time between two writes of the high watermarks",
    "replica.lag.time.max.ms": "a follower that has not caught up for so long leaves the ISR",
    "replica.selector.class": "Kafka's name of what sends consumers to a replica of their rack; empty: leaders serve all",
    "replica.socket.receive.buffer.bytes": "receive buffer of a follower's connection, -1 the system's",
    "replica.socket.timeout.ms": "longest wait of a follower for an answer",
    "replication.quota.window.num": "windows that the rate of throttled replicas is measured over",
    "replication.quota.window.size.seconds": "length of one of them",
    "request.timeout.ms": "longest wait of this broker for another's answer",
    "reserved.broker.max.id": "generated broker ids begin above it",
    "sasl.mechanism.inter.broker.protocol": "the mechanism by which brokers log in at each other",
    "sasl.server.max.receive.size": "largest request before a login is done, bytes",
    "socket.receive.buffer.bytes": "receive buffer of a connection, -1 the system's",
    "socket.request.max.bytes": "largest request that is read",
    "socket.send.buffer.bytes": "send buffer of a connection, -1 the system's",
    "super.users": "who may do everything, as User:name, separated by semicolons",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "how often transactions past their time are looked for",
    "transaction.max.timeout.ms": "the longest timeout that a transactional producer may ask for",
    "transaction.partition.verification.enable": "ask the coordinator before a batch opens a transaction",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "how often unused transactional ids are looked for",
    "transaction.state.log.load.buffer.size": "bytes read at a time when a partition of transactions is loaded",
    "transaction.state.log.min.isr": "min.insync.replicas of the topic of transactions when it is made",
    "transaction.state.log.num.partitions": "partitions of the topic of transactions when it is made",
    "transaction.state.log.replication.factor": "replicas of the topic of transactions when it is made",
    "transaction.state.log.segment.bytes": "segment size of the topic of transactions when it is made",
    "transactional.id.expiration.ms": "a producer or transactional id not used for so long is forgotten",
    "zookeeper.connect": "the ZooKeeper servers, and the path below which the cluster is",
    "zookeeper.connection.timeout.ms": "longest wait for ZooKeeper at start",
    "zookeeper.session.timeout.ms": "a broker that ZooKeeper has not heard of for so long counts as dead",
}
"""By property; those that are the default of a topic config have that one's meaning."""
