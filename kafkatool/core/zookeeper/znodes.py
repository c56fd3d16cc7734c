"""One class per znode: where it is, how its content is read and written (Z). No other module spells a path.

Reading follows Z-33 to Z-36: unknown keys and higher versions are ignored, a missing required key is bad content.
Writing follows Kafka 0.10.2 / 1.1 (zk/ZkData.scala): broker v4, topic v1, config change v2, all others v1.
"""

import base64
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote

import orjson

from kafkatool.core.errors import RefusedError, ZnodeFormatError
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.plan_form import encode_partitions, encode_plan
from kafkatool.core.model.values import Assignment, BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition

_INTEGERS = frozenset({int})  # not bool
_MOVES = ("adding_replicas", "removing_replicas")
_DROPPED = "dropped_replicas"
_FIRST_THAT_ASKS = 5  # version of a broker's node from inter.broker.protocol.version 2.7 on, which brought AlterIsr
_ENDPOINT = re.compile(r"^(?P<listener>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\[\]]*)):(?P<port>-?\d+)$")


def _object(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise ZnodeFormatError(f"znode {path} does not hold JSON: {e}") from e
    if not isinstance(value, dict):
        raise ZnodeFormatError(f"znode {path} holds {type(value).__name__}, not a JSON object")
    return value


def _field(path: str, value: Mapping[str, Any], key: str, kind: type) -> Any:
    found = value.get(key)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise ZnodeFormatError(f"znode {path}: {key!r} is missing or not {kind.__name__}")
    return found


def _ids(path: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not _INTEGERS.issuperset(map(type, value)):
        raise ZnodeFormatError(f"znode {path}: expected a list of broker ids, found {value!r}")
    return tuple(value)


def _number(path: str, data: bytes, what: str) -> int:
    try:
        return int(data)
    except ValueError as e:
        raise ZnodeFormatError(f"znode {path} holds {data!r}, not {what}") from e


def _partitions(path: str, data: bytes) -> list[dict[str, Any]]:
    if not data:
        return []  # a node without content asks for nothing (Z-36)
    entries: list[dict[str, Any]] = _field(path, _object(path, data), "partitions", list)
    for entry in entries:
        if not isinstance(entry, dict):
            raise ZnodeFormatError(f"znode {path}: {entry!r} is not a partition")
        _field(path, entry, "topic", str)
        _field(path, entry, "partition", int)
    return entries


class BrokersZnode:
    """/brokers/ids: its children are the registered brokers."""

    PATH: Final = "/brokers/ids"


class BrokerZnode:
    """/brokers/ids/N: a live broker's endpoints; ephemeral, its czxid is the broker's incarnation (Z-7 to Z-10)."""

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BrokersZnode.PATH}/{broker_id}"

    @classmethod
    def decode(cls, broker_id: int, data: bytes, czxid: int | None = None) -> BrokerInfo:
        """Read versions 1 to 5 and above. Raises ZnodeFormatError: the broker counts as absent (Z-7, Z-35)."""
        path = cls.path(broker_id)
        value = _object(path, data)
        if _field(path, value, "version", int) < 1:
            raise ZnodeFormatError(f"znode {path}: version {value['version']} is not supported")
        rack = value.get("rack")
        asks = value["version"] >= _FIRST_THAT_ASKS
        if "endpoints" not in value:
            host, port = _field(path, value, "host", str), _field(path, value, "port", int)
            return BrokerInfo(broker_id, (Endpoint("PLAINTEXT", host, port),), rack, czxid, asks)
        protocols = {k.upper(): v for k, v in (value.get("listener_security_protocol_map") or {}).items()}
        endpoints = []
        for text in _field(path, value, "endpoints", list):
            match = _ENDPOINT.match(text) if isinstance(text, str) else None
            if not match:
                raise ZnodeFormatError(f"znode {path}: {text!r} is not an endpoint LISTENER://host:port")
            listener = match["listener"].upper()
            host = match["v6"] if match["v6"] is not None else match["host"]
            endpoints.append(Endpoint(listener, host, int(match["port"]), protocols.get(listener, listener)))
        return BrokerInfo(broker_id, tuple(endpoints), rack if isinstance(rack, str) else None, czxid, asks)

    @staticmethod
    def encode(info: BrokerInfo, timestamp_ms: int) -> bytes:
        """Write version 4 (BRK-120). ``host`` and ``port`` are those of the first PLAINTEXT endpoint, else null and -1."""
        plain = next((e for e in info.endpoints if e.protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            "listener_security_protocol_map": {e.listener: e.protocol for e in info.endpoints},
            "endpoints": [
                f"{e.listener}://{f'[{e.host}]' if ':' in e.host else e.host}:{e.port}" for e in info.endpoints
            ],
            "jmx_port": -1,
            "host": plain.host if plain else None,
            "timestamp": str(timestamp_ms),
            "port": plain.port if plain else -1,
            "version": 4,
        }
        if info.rack is not None:
            value["rack"] = info.rack
        return orjson.dumps(value)


class SequenceIdZnode:
    """/brokers/seqid: no data; its version is the counter of generated broker ids (Z-11)."""

    PATH: Final = "/brokers/seqid"


class TopicsZnode:
    """/brokers/topics: its children are the topics."""

    PATH: Final = "/brokers/topics"


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """/brokers/topics/T: the assignment (Z-12 to Z-14). ``raw`` keeps what else the node holds, for rewriting it."""

    assignment: Assignment
    raw: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicsZnode.PATH}/{topic}"

    @classmethod
    def decode(cls, topic: str, data: bytes) -> Self:
        path = cls.path(topic)
        value = _object(path, data)
        partitions = value.get("partitions") or {}
        if not isinstance(partitions, dict):
            raise ZnodeFormatError(f"znode {path}: 'partitions' is not an object")
        assignment = {}
        for key, replicas in partitions.items():
            if not key.isdecimal():
                raise ZnodeFormatError(f"znode {path}: {key!r} is not a partition number")
            assignment[int(key)] = _ids(path, replicas)
        return cls(dict(sorted(assignment.items())), value)

    def encode(self) -> bytes:
        partitions = {str(p): list(replicas) for p, replicas in self.assignment.items()}
        return orjson.dumps({"version": 1, **self.raw, "partitions": partitions})

    def with_assignment(self, assignment: Assignment) -> Self:
        """Return the same node with another assignment; version, topic_id and unknown keys stay (Z-13)."""
        return type(self)(dict(sorted(assignment.items())), self.raw)

    def is_moved(self, number: int) -> bool:
        """Tell whether Kafka >= 2.4 has noted the partition to be moving, of whichever kind the move is (KIP-455)."""
        for moves in _MOVES:  # asked of each of 10,000 partitions, of which mostly nothing is noted
            noted = self.raw.get(moves)
            if noted and isinstance(noted, dict) and noted.get(str(number)):
                return True
        return False

    @property
    def being_moved(self) -> frozenset[int]:
        """Return the partitions that ``is_moved`` is true of."""
        if not any(map(self.raw.get, _MOVES)):
            return frozenset()
        return frozenset(filter(self.is_moved, self.assignment))

    def added(self, number: int, target: Collection[int] = ()) -> frozenset[int]:
        """Return the brokers that a move adds to the partition; ``target``: those its move by znode wants (ADM-75).

        Which of the target are new is known only where Kafka >= 2.4 has noted it; else any of them may be.
        """
        noted = self.raw.get(_MOVES[0])
        brokers = noted.get(str(number)) if isinstance(noted, dict) else None
        return frozenset(target if brokers is None else brokers)

    def with_moved(self, moved: Assignment) -> Self:
        """Return the node with other replicas of those partitions, and with none of them on the move (KIP-455).

        What the node has told of a move does not fit any more: Kafka's next controller would go on with it, and leave the
        partition without leader (seen with 2.8.2).
        """
        raw = dict(self.raw)
        for key in _MOVES:
            if isinstance(noted := raw.get(key), dict):
                raw[key] = {p: brokers for p, brokers in noted.items() if not (p.isdecimal() and int(p) in moved)}
        return type(self)({**self.assignment, **moved}, raw)

    def move_of(self, number: int) -> StoredMove:
        """Return what the node tells of a partition: of most AR alone."""
        adding, removing, dropped = (
            _ids(self.path("?"), noted[str(number)]) if isinstance(noted := self.raw.get(key), dict) and str(number) in noted
            else () for key in (*_MOVES, _DROPPED)
        )  # fmt: skip
        return StoredMove(self.assignment[number], adding, removing, dropped)

    @property
    def moves(self) -> dict[int, StoredMove]:
        """Return what the node tells of partitions that are on the move, or have replicas to be dropped."""
        noted = [value for key in (*_MOVES, _DROPPED) if isinstance(value := self.raw.get(key), dict)]
        if not any(noted):
            return {}  # nearly always, and a failover asks for each of thousands of topics
        found = {int(p): self.move_of(int(p)) for value in noted for p in value if p.isdecimal()
                 and int(p) in self.assignment}  # fmt: skip
        return {n: move for n, move in found.items() if move.is_moving or move.dropped}

    def with_moves(self, moves: Mapping[int, StoredMove]) -> Self:
        """Return the node telling of those moves: in version 2 at least, without what is at rest (ADM-70)."""
        raw = dict(self.raw)
        raw["version"] = max(found if isinstance(found := raw.get("version"), int) else 1, 2)
        for key, part in zip((*_MOVES, _DROPPED), ("adding", "removing", "dropped"), strict=True):
            noted = {p: brokers for p, brokers in (raw.get(key) or {}).items() if int(p) not in moves}
            noted.update({str(n): list(brokers) for n, move in moves.items() if (brokers := getattr(move, part))})
            raw[key] = noted
        if not raw[_DROPPED]:
            del raw[_DROPPED]
        return type(self)({**self.assignment, **{n: move.replicas for n, move in moves.items()}}, raw)


class PartitionsZnode:
    """/brokers/topics/T/partitions: empty parent of the partitions' nodes (Z-15)."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicsZnode.PATH}/{topic}/partitions"


class PartitionZnode:
    """/brokers/topics/T/partitions/P: empty parent of the state node (Z-15)."""

    @staticmethod
    def path(partition: TopicPartition) -> str:
        return f"{TopicsZnode.PATH}/{partition.topic}/partitions/{partition.partition}"


def _parse_leadership(path: str, data: bytes) -> LeaderAndIsr:
    value = _object(path, data)
    leader = _field(path, value, "leader", int)
    return LeaderAndIsr(
        leader=None if leader < 0 else leader,
        leader_epoch=_field(path, value, "leader_epoch", int),
        isr=_ids(path, value.get("isr")),
        controller_epoch=_field(path, value, "controller_epoch", int),
    )


_leadership = lru_cache(maxsize=4096)(partial(_parse_leadership, ""))


class PartitionStateZnode:
    """/brokers/topics/T/partitions/P/state: leader and ISR (Z-15 to Z-17).

    Written by the controller and by the partition's leader, always on the version read.
    """

    @staticmethod
    def path(partition: TopicPartition) -> str:
        return f"{TopicsZnode.PATH}/{partition.topic}/partitions/{partition.partition}/state"

    @classmethod
    def decode(cls, partition: TopicPartition, data: bytes) -> LeaderAndIsr:
        """Read the node. Of thousands of partitions few differ in leadership: equal ones share what is decoded once."""
        try:
            return _leadership(data)
        except ZnodeFormatError:
            return _parse_leadership(cls.path(partition), data)  # raises it again, naming the node

    @classmethod
    def is_recovering(cls, data: bytes) -> bool:
        """Tell whether the leader was elected uncleanly and has not recovered yet (Kafka >= 3.2, KIP-704)."""
        return b"leader_recovery_state" in data and _object("", data).get("leader_recovery_state") == 1

    @staticmethod
    def encode(state: LeaderAndIsr) -> bytes:
        value = {
            "controller_epoch": state.controller_epoch,
            "leader": -1 if state.leader is None else state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": state.isr,
        }
        return orjson.dumps(value)


class ControllerZnode:
    """/controller: the id of the broker that is controller; ephemeral (Z-18)."""

    PATH: Final = "/controller"

    @staticmethod
    def encode(broker_id: int, timestamp_ms: int) -> bytes:
        return orjson.dumps({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})

    @classmethod
    def decode(cls, data: bytes) -> int:
        """Return the broker id; a bare integer is the form before 0.8. Anything else raises ZnodeFormatError."""
        if re.fullmatch(rb"\s*\d+\s*", data):
            return int(data)
        return int(_field(cls.PATH, _object(cls.PATH, data), "brokerid", int))


@dataclass(frozen=True, slots=True)
class KRaftControllerZnode:
    """/controller as a migration has it: ``kraft_epoch`` None where a broker is controller (KIP-866)."""

    broker_id: int
    kraft_epoch: int | None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read either form."""
        epoch = _object(ControllerZnode.PATH, data).get("kraftControllerEpoch") if data.strip()[:1] == b"{" else None
        known = isinstance(epoch, int) and epoch >= 0
        return cls(ControllerZnode.decode(data), epoch if known else None)


@dataclass(frozen=True, slots=True)
class MigrationZnode:
    """/migration: which KRaft controller writes to ZooKeeper, and up to which of its records (KIP-866); all -1 at first."""

    PATH: ClassVar[str] = "/migration"

    controller_id: int
    controller_epoch: int
    metadata_offset: int
    metadata_epoch: int
    unknown: tuple[str, ...] = ()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the node; ``unknown`` are keys of a later Kafka. Raises ZnodeFormatError."""
        value = _object(cls.PATH, data)
        keys = ("kraft_controller_id", "kraft_controller_epoch", "kraft_metadata_offset", "kraft_metadata_epoch")
        controller_id, controller_epoch, offset, epoch = (_field(cls.PATH, value, key, int) for key in keys)
        unknown = tuple(sorted(set(value).difference(keys, ("version",))))
        return cls(controller_id, controller_epoch, offset, epoch, unknown)


class ControllerEpochZnode:
    """/controller_epoch: decimal text, one higher with each controller (Z-19)."""

    PATH: Final = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        return str(epoch).encode()

    @classmethod
    def decode(cls, data: bytes) -> int:
        return _number(cls.PATH, data, "a number")


class DeleteTopicsZnode:
    """/admin/delete_topics: one empty child per topic marked for deletion (Z-20)."""

    PATH: Final = "/admin/delete_topics"

    @classmethod
    def topic_path(cls, topic: str) -> str:
        return f"{cls.PATH}/{topic}"


class ReassignmentZnode:
    """/admin/reassign_partitions: wanted replicas of the partitions being moved (Z-21). A plan file has this form.

    Created by ``kt reassign`` and by ``kt topics alter`` with another replication factor; changed, and deleted with its
    last entry, by the controller.
    """

    PATH: Final = "/admin/reassign_partitions"

    @staticmethod
    def encode(partitions: Mapping[TopicPartition, Sequence[int]]) -> bytes:
        return encode_plan(partitions)

    @classmethod
    def decode(cls, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the wanted replicas; of a partition listed twice the last entry counts."""
        entries = _partitions(cls.PATH, data)
        return {TopicPartition(e["topic"], e["partition"]): _ids(cls.PATH, e.get("replicas")) for e in entries}


class _PartitionList:
    """A node that names partitions."""

    PATH: ClassVar[str]

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return encode_partitions(partitions)

    @classmethod
    def decode(cls, data: bytes) -> list[TopicPartition]:
        return [TopicPartition(e["topic"], e["partition"]) for e in _partitions(cls.PATH, data)]


class PreferredElectionZnode(_PartitionList):
    """/admin/preferred_replica_election: partitions whose preferred replica is to lead (Z-22, Z-23)."""

    PATH = "/admin/preferred_replica_election"


class IsrChangeZnode(_PartitionList):
    """/isr_change_notification/isr_change_N: partitions whose ISR their leader changed (Z-30)."""

    PATH = "/isr_change_notification"
    PREFIX: Final = "/isr_change_notification/isr_change_"


class LogDirEventZnode:
    """/log_dir_event_notification/log_dir_event_N: a broker lost a log directory (Z-47)."""

    PATH: Final = "/log_dir_event_notification"
    PREFIX: Final = "/log_dir_event_notification/log_dir_event_"

    @staticmethod
    def encode(broker_id: int) -> bytes:
        return orjson.dumps({"version": 1, "broker": broker_id, "event": 1})

    @classmethod
    def decode(cls, data: bytes) -> int | None:
        """Return the broker's id; None: a node without content, which names none (Z-36)."""
        return int(_field(cls.PATH, _object(cls.PATH, data), "broker", int)) if data else None


_NO_NAMES = frozenset({"", ".", ".."})


class ConfigZnode:
    """/config/<type>/<name>: overrides of a topic, client, user or broker; every value is text (Z-24 to Z-26)."""

    DEFAULT: Final = "<default>"

    @classmethod
    def path(cls, entity_type: str, name: str) -> str:
        """Return the path of topics, clients, users or brokers; users and clients are URL-encoded (Z-24)."""
        return f"/config/{cls.entity_path(entity_type, name)}"

    @classmethod
    def entity_path(cls, entity_type: str, name: str) -> str:
        """Return the name in change notifications: ``topics/t``. Raises RefusedError: no node can have that name."""
        if name in _NO_NAMES and entity_type in ("users", "clients"):
            raise RefusedError(f"no config of {entity_type} can be named {name!r}: ZooKeeper has no such paths")
        if entity_type in ("users", "clients") and name != cls.DEFAULT:
            name = quote(name, safe="").replace("~", "%7E")
        return f"{entity_type}/{name}"

    @staticmethod
    def path_of(entity_path: str) -> str:
        """Return the path of an entity named as in change notifications: ``users/u/clients/c``."""
        return f"/config/{entity_path}"

    @staticmethod
    def decode(path: str, data: bytes) -> dict[str, str]:
        """Return the overrides; empty data means none. Raises ZnodeFormatError on anything but JSON objects."""
        if not data:
            return {}
        config = _object(path, data).get("config") or {}
        if not isinstance(config, dict):
            raise ZnodeFormatError(f"znode {path}: 'config' is not an object")
        return {k: v if isinstance(v, str) else orjson.dumps(v).decode() for k, v in config.items()}

    @staticmethod
    def encode(config: Mapping[str, str], previous: bytes = b"") -> bytes:
        """Replace the whole config object; unknown keys beside it in ``previous`` stay (Z-26)."""
        try:
            kept = _object("", previous)
        except ZnodeFormatError:
            kept = {}  # an unreadable node holds nothing to keep (Z-35: no overrides)
        return orjson.dumps({"version": 1, **kept, "config": dict(config)})


class AdminZnode:
    """/admin: its children ask the controller for something."""

    PATH: Final = "/admin"
    KNOWN: Final = frozenset({"delete_topics", "reassign_partitions", "preferred_replica_election"})


class AclsZnode:
    """/kafka-acl: below it a node for each kind of resource, and below that one for each resource with ACLs."""

    PATH: Final = "/kafka-acl"


class DelegationTokensZnode:
    """/delegation_token/tokens: a node for each token."""

    PATH: Final = "/delegation_token/tokens"


class ConfigChangeZnode:
    """/config/changes/config_change_N: an entity's config changed, read it again (Z-27 to Z-29)."""

    PATH: Final = "/config/changes"
    PREFIX: Final = "/config/changes/config_change_"

    @staticmethod
    def encode(entity_path: str) -> bytes:
        return orjson.dumps({"version": 2, "entity_path": entity_path})

    @classmethod
    def decode(cls, data: bytes) -> str | None:
        """Return the entity path, from versions 1, 2 and the bare topic name of 0.8; None: no content (Z-36).

        Raises ZnodeFormatError (Z-28).
        """
        if not data:
            return None
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as e:
            raise ZnodeFormatError(f"config change is not JSON: {e}") from e
        if isinstance(value, str):
            return f"topics/{value}"
        if not isinstance(value, dict):
            raise ZnodeFormatError(f"config change holds {value!r}")
        match value.get("version"):
            case 1 if value.get("entity_type") in ("topics", "clients"):
                return f"{value['entity_type']}/{_field(cls.PATH, value, 'entity_name', str)}"
            case 2:
                return str(_field(cls.PATH, value, "entity_path", str))
        raise ZnodeFormatError(f"config change of unknown version or type: {value!r}")


class ConsumerOffsetZnode:
    """/consumers/<group>/offsets/<topic>/<partition>: an offset committed by version 0 of the API, as text (GRP-46)."""

    _ILLEGAL = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|^\.{0,2}$")  # ZooKeeper's own rule

    @classmethod
    def path(cls, group: str, partition: TopicPartition) -> str:
        """Return the path. Raises ValueError for a group that no node can be named after."""
        if cls._ILLEGAL.search(group):
            raise ValueError(f"group id {group!r} cannot be the name of a znode")
        return f"/consumers/{group}/offsets/{partition.topic}/{partition.partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        return str(offset).encode()

    @staticmethod
    def decode(path: str, data: bytes) -> int:
        """Return the offset. Raises ZnodeFormatError."""
        return _number(path, data, "an offset")


class ClusterIdZnode:
    """/cluster/id: made once by the first broker, never changed (Z-31)."""

    PATH: Final = "/cluster/id"

    @staticmethod
    def generate() -> str:
        import uuid  # few need it

        return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return orjson.dumps({"version": "1", "id": cluster_id})

    @classmethod
    def decode(cls, data: bytes) -> str | None:
        """Return the id; None: a node without content, as if there were none (Z-36)."""
        return str(_field(cls.PATH, _object(cls.PATH, data), "id", str)) if data else None


class ProducerIdBlockZnode:
    """/latest_producer_id_block: the block of producer ids handed out last, both ends included (BRK-163)."""

    PATH: Final = "/latest_producer_id_block"

    @staticmethod
    def encode(broker_id: int, start: int, end: int) -> bytes:
        return orjson.dumps({"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end)})

    @classmethod
    def decode(cls, data: bytes) -> tuple[int, int, int]:
        """Return broker, first id and last id."""
        value = _object(cls.PATH, data)
        try:
            return int(value["broker"]), int(value["block_start"]), int(value["block_end"])
        except (KeyError, TypeError, ValueError) as e:
            raise ZnodeFormatError(f"znode {cls.PATH} holds {data!r}") from e


PERSISTENT_PATHS: Final = (
    "/consumers",
    BrokersZnode.PATH,
    TopicsZnode.PATH,
    SequenceIdZnode.PATH,
    ConfigChangeZnode.PATH,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    DeleteTopicsZnode.PATH,
    IsrChangeZnode.PATH,
    LogDirEventZnode.PATH,
    ProducerIdBlockZnode.PATH,
)
"""The nodes that a broker makes sure exist at its start (Z-4)."""
