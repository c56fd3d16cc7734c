"""``server.properties``: names, types, defaults (Kafka 1.1.1's) and units.

A field is its property's name with ``_`` for ``.``; the unit is in the name or beside it. Numbers keep Kafka's own
signs for "no limit" (-1). Several old spellings of one setting (hours, minutes, ms) end in the one in ms.
Unknown names are accepted with a warning, so that a real broker's file can be used as it is.
"""

import dataclasses
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, get_type_hints

from kafkatool.broker.settings import listeners as endpoints
from kafkatool.broker.settings.inter_broker import inter_broker_security
from kafkatool.broker.settings.protocol_versions import (
    PROTOCOL_VERSIONS,
    ProtocolVersions,
    parse_protocol_version,
    record_format_of,
)
from kafkatool.core.errors import ConfigError
from kafkatool.core.java_properties import load_properties
from kafkatool.core.model.values import Endpoint
from kafkatool.core.security.client_security import ClientSecurity

log = logging.getLogger(__name__)

NO_LIMIT = 2**63 - 1
_INT_MAX = 2**31 - 1
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


AUTHORIZERS = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""Kafka's names for the authorizer that goes by the ACLs in ZooKeeper; no other is there (SEC-76)."""


def _number(default: float, low: float = 0, high: float = NO_LIMIT) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


def _choice(default: str, *values: str) -> Any:
    return field(default=default, metadata={"values": (default, *values)})


_DERIVED = {"derived": True}  # no property of its own


LEADER_ALONE: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's names for what a leader tells consumers: to read from it, or from a replica of their rack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's settings, checked. Make it with ``from_properties`` or ``load``."""

    # identity and addresses (BRK-5, 6, 119, 120, 124)
    broker_id: int = _number(-1, -1, _INT_MAX)  # -1: taken from meta.properties or generated
    broker_id_generation_enable: bool = True
    reserved_broker_max_id: int = _number(1000)
    broker_rack: str | None = None
    listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "", 9092),)
    advertised_listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "", 9092),)
    inter_broker_listener_name: str = "PLAINTEXT"
    inter_broker_protocol_version: str = "2.3"  # normalised: 0.10.0, ... 0.11.0, 1.0, ... 2.3
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int = _number(6000, 1)
    zookeeper_connection_timeout_ms: int = _number(6000, 1)

    # network (BRK-5 to 22)
    num_network_threads: int = _number(3, 1)
    num_io_threads: int = _number(8, 1)
    background_threads: int = _number(10, 1)
    queued_max_requests: int = _number(500, 1)
    queued_max_request_bytes: int = _number(-1, -1)  # -1: a quarter of the machine's memory
    socket_request_max_bytes: int = _number(104_857_600, 1, _INT_MAX)
    socket_send_buffer_bytes: int = _number(102_400, -1)
    socket_receive_buffer_bytes: int = _number(102_400, -1)
    connections_max_idle_ms: int = _number(600_000, -1)
    max_connections_per_ip: int = _number(_INT_MAX, 0)
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connections: int = _number(_INT_MAX, 1)
    request_timeout_ms: int = _number(30_000, 1)
    quota_producer_default: int = _number(NO_LIMIT, 1)
    quota_consumer_default: int = _number(NO_LIMIT, 1)
    quota_window_num: int = _number(11, 1)
    quota_window_size_seconds: int = _number(1, 1)

    # security (SEC-46 to 98); what each listener may have of its own is in ``properties`` alone
    sasl_mechanism_inter_broker_protocol: str = "GSSAPI"
    sasl_server_max_receive_size: int = _number(524_288, 1, _INT_MAX)
    connection_failed_authentication_delay_ms: int = _number(100)
    kt_jaas_config: Path | None = None
    kt_authentication_timeout_ms: int = _number(10_000, 100)
    kt_max_unauthenticated_connections: int = _number(1000, 1)
    kt_inter_broker_principals: Mapping[int, str] = field(default_factory=dict)  # 1=User:CN=b1;2=User:CN=b2
    """Who each broker logs in as; where any is named, nobody else is believed to be one (SEC-51)."""
    kt_inter_broker_also_on: frozenset[str] = frozenset()  # PLAINTEXT
    """Other listeners where brokers are taken for brokers, while a cluster changes over to another one (SEC-53)."""

    # replication (BRK-51 to 106)
    replication_quota_window_num: int = _number(11, 1)
    replication_quota_window_size_seconds: int = _number(1, 1)
    alter_log_dirs_replication_quota_window_num: int = _number(11, 1)
    alter_log_dirs_replication_quota_window_size_seconds: int = _number(1, 1)
    replica_selector_class: str = _choice("", LEADER_ALONE, RACK_AWARE)
    replica_lag_time_max_ms: int = _number(10_000, 1)
    num_replica_fetchers: int = _number(1, 1)
    replica_fetch_max_bytes: int = _number(1_048_576, 0, _INT_MAX)
    replica_fetch_response_max_bytes: int = _number(10_485_760, 0, _INT_MAX)
    replica_fetch_min_bytes: int = _number(1, 0, _INT_MAX)
    replica_fetch_wait_max_ms: int = _number(500, 0, _INT_MAX)
    replica_fetch_backoff_ms: int = _number(1000)
    replica_socket_timeout_ms: int = _number(30_000, 1)
    replica_socket_receive_buffer_bytes: int = _number(65_536, -1)
    replica_high_watermark_checkpoint_interval_ms: int = _number(5000, 1)
    fetch_max_bytes: int = _number(57_671_680, 1024, _INT_MAX)
    fetch_purgatory_purge_interval_requests: int = _number(1000, 1)
    producer_purgatory_purge_interval_requests: int = _number(1000, 1)
    max_incremental_fetch_session_cache_slots: int = _number(1000)
    min_insync_replicas: int = _number(1, 1, _INT_MAX)
    unclean_leader_election_enable: bool = True
    default_replication_factor: int = _number(1, 1, 32767)
    num_partitions: int = _number(1, 1, _INT_MAX)
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = False

    # controller and controlled stop (BRK-126)
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = _number(3)
    controlled_shutdown_retry_backoff_ms: int = _number(5000)
    controller_socket_timeout_ms: int = _number(30_000, 1)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = _number(300, 1)
    leader_imbalance_per_broker_percentage: int = _number(10)

    # storage (BRK-129 to 150, 167)
    log_dirs: tuple[Path, ...] = (Path("/tmp/kafka-logs"),)
    log_segment_bytes: int = _number(1_073_741_824, 14, _INT_MAX)
    log_roll_ms: int = _number(168 * _HOUR_MS, 1)
    log_roll_jitter_ms: int = _number(0)
    log_retention_ms: int = _number(168 * _HOUR_MS, -1)  # -1: no limit
    log_retention_bytes: int = _number(-1, -1)  # -1: no limit
    log_retention_check_interval_ms: int = _number(300_000, 1)
    log_cleanup_policy: frozenset[str] = frozenset({"delete"})
    log_cleaner_enable: bool = True
    log_cleaner_min_cleanable_ratio: float = _number(0.5, 0, 1)
    log_cleaner_backoff_ms: int = _number(15_000)
    log_cleaner_dedupe_buffer_size: int = _number(134_217_728, 1)
    log_cleaner_io_max_bytes_per_second: float = _number(sys.float_info.max, 1, sys.float_info.max)
    log_cleaner_delete_retention_ms: int = _number(86_400_000)
    log_cleaner_min_compaction_lag_ms: int = _number(0)
    log_cleaner_max_compaction_lag_ms: int = _number(NO_LIMIT, 1)
    log_segment_delete_delay_ms: int = _number(60_000)
    log_index_interval_bytes: int = _number(4096)
    log_index_size_max_bytes: int = _number(10_485_760, 4)
    log_flush_interval_messages: int = _number(NO_LIMIT, 1)
    log_flush_interval_ms: int = _number(NO_LIMIT)
    log_flush_scheduler_interval_ms: int = _number(NO_LIMIT)
    log_flush_offset_checkpoint_interval_ms: int = _number(60_000)
    log_flush_start_offset_checkpoint_interval_ms: int = _number(60_000)
    num_recovery_threads_per_data_dir: int = _number(1, 1)
    log_preallocate: bool = False
    message_max_bytes: int = _number(1_000_012, 0, _INT_MAX)
    compression_type: str = _choice("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    log_message_downconversion_enable: bool = True
    log_message_format_version: str = "2.3"  # else that of inter.broker.protocol.version
    log_message_timestamp_type: str = _choice("CreateTime", "LogAppendTime")
    log_message_timestamp_difference_max_ms: int = _number(NO_LIMIT)
    transactional_id_expiration_ms: int = _number(604_800_000, 1)
    producer_id_expiration_ms: int = _number(604_800_000, 1)  # not given: transactional.id.expiration.ms (TXN-49)

    # groups
    offsets_topic_num_partitions: int = _number(50, 1)
    offsets_topic_replication_factor: int = _number(3, 1, 32767)
    offsets_topic_segment_bytes: int = _number(104_857_600, 14, _INT_MAX)
    offsets_topic_compression_codec: int = _number(0, 0, 4)
    offsets_load_buffer_size: int = _number(5_242_880, 1, _INT_MAX)
    offset_metadata_max_bytes: int = _number(4096)
    offsets_retention_minutes: int = _number(10_080, 1)
    offsets_retention_check_interval_ms: int = _number(600_000, 1)
    offsets_commit_timeout_ms: int = _number(5000, 1)
    offsets_commit_required_acks: int = _number(-1, -1, 1)
    group_min_session_timeout_ms: int = _number(6000)
    group_max_session_timeout_ms: int = _number(1_800_000)
    group_initial_rebalance_delay_ms: int = _number(3000)
    group_max_size: int = _number(_INT_MAX, 1, _INT_MAX)

    # transactions
    transaction_state_log_num_partitions: int = _number(50, 1)
    transaction_state_log_replication_factor: int = _number(3, 1, 32767)
    transaction_state_log_min_isr: int = _number(2, 1, _INT_MAX)
    transaction_state_log_segment_bytes: int = _number(104_857_600, 14, _INT_MAX)
    transaction_state_log_load_buffer_size: int = _number(5_242_880, 1, _INT_MAX)
    transaction_max_timeout_ms: int = _number(900_000, 1, _INT_MAX)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _number(10_000, 1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _number(3_600_000, 1)
    transaction_partition_verification_enable: bool = True

    # security (SEC-46 to 103)
    authorizer_class_name: str = _choice("", *AUTHORIZERS)
    super_users: str = ""  # User:admin;User:CN=admin,O=x
    allow_everyone_if_no_acl_found: bool = False

    # our own
    kt_halt_on_truncation_below_hw: bool = False
    kt_fence_on_zk_session_loss: bool = False
    kt_zookeeper_max_packet_bytes: int = _number(1_048_575, 1024, _INT_MAX)  # ZooKeeper's jute.maxbuffer
    kt_conversion_max_bytes: int = _number(67_108_864, 1, _INT_MAX)
    kt_validate_records: str = _choice("auto", "full")
    kt_max_partitions_per_request: int = _number(100_000, 1, _INT_MAX)
    kt_max_auto_created_topics_per_request: int = _number(50, 1, _INT_MAX)
    kt_max_records_per_batch: int = _number(1_000_000, 1, _INT_MAX)  # the most that librdkafka can be told to gather
    kt_log_dir: Path | None = None  # for state-change.log and controller.log; see ``own_log_dir``
    kt_fault_socket: Path | None = None  # where a test asks for faults; an embedded cluster sets it for its brokers

    inter_broker_security: ClientSecurity | None = field(default=None, repr=False, metadata=_DERIVED)
    """What connections to other brokers need (SEC-48)."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False, metadata=_DERIVED)
    """The texts given, by property name; they tell a setting from a default."""

    @classmethod
    def load(cls, path: Path, overrides: Mapping[str, str] | None = None) -> Self:
        """Read a file, ``overrides`` winning. Raises ConfigError."""
        return cls.from_properties({**load_properties(path), **(overrides or {})})

    @classmethod
    def from_properties(cls, given: Mapping[str, str]) -> Self:
        """Read property names and texts. Raises ConfigError naming the property, its value and what is allowed."""
        values: dict[str, Any] = {}
        for item in dataclasses.fields(cls):
            name = item.name.replace("_", ".")
            parse = _PARSERS.get(_HINTS[item.name])
            if parse is not None and (text := given.get(name, "").strip()):
                values[item.name] = _checked(name, text, parse, item.metadata)
        if "zookeeper_connect" not in values:
            raise ConfigError("zookeeper.connect is required: host:port[,host:port...][/chroot]")
        _derive(values, {k: v.strip() for k, v in given.items()})
        for name in sorted(given.keys() - cls.property_names()):
            if not endpoints.is_listener_property(name, values["listeners"]):
                log.warning("unknown property %s is ignored", name)
        return cls(**values, properties=dict(given))

    @classmethod
    def property_names(cls) -> set[str]:
        """Return the names of all properties that are read, other spellings among them."""
        return {
            item.name.replace("_", ".") for item in dataclasses.fields(cls) if not item.metadata.get("derived")
        } | set(_SPECIAL)

    @property
    def protocol_versions(self) -> ProtocolVersions:
        """Return the versions of the requests sent to other brokers (table B)."""
        return PROTOCOL_VERSIONS[self.inter_broker_protocol_version]

    @property
    def own_log_dir(self) -> Path:
        """Return where state-change.log and controller.log go: kt.log.dir, else ``logs`` beside the first log dir."""
        return self.kt_log_dir or self.log_dirs[0].absolute().parent / "logs"

    def speaks(self, release: str) -> bool:
        """Tell whether inter.broker.protocol.version is at least ``release`` (``2.3``)."""
        order = list(PROTOCOL_VERSIONS)
        return order.index(self.inter_broker_protocol_version) >= order.index(release)


def _parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


_HINTS = get_type_hints(BrokerConfig)
_PARSERS: Mapping[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _parse_bool,
    str: str,
    str | None: str,
    Path | None: Path,
}
COARSER: Mapping[str, Mapping[str, int]] = {
    "log.retention.ms": {"log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
    "log.roll.ms": {"log.roll.hours": _HOUR_MS},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": _HOUR_MS},
}
"""Other spellings of one duration and their units in ms, by what wins over what."""
_SPECIAL = (
    "authorizer.zookeeper.url",
    "host.name",
    "port",
    "advertised.host.name",
    "advertised.port",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
    *endpoints.LISTENER_PROPERTIES,
    "log.dir",
    *(spelling for spellings in COARSER.values() for spelling in spellings),
)


def _checked(name: str, text: str, parse: Callable[[str], Any], bounds: Mapping[str, Any]) -> Any:
    try:
        value = parse(text)
    except ValueError as e:
        kind = "a number" if parse in (int, float) else str(e)
        raise ConfigError(f"{name}={text}: expected {kind}") from e
    if "low" in bounds and not bounds["low"] <= value <= bounds["high"]:
        raise ConfigError(f"{name}={text}: must be between {bounds['low']} and {bounds['high']}")
    if "values" in bounds and value not in bounds["values"]:
        raise ConfigError(f"{name}={text}: must be one of {', '.join(bounds['values'])}")
    return value


def parse_setting(name: str, text: str) -> Any:
    """Read one property whose value no other decides. Raises ConfigError as ``from_properties``."""
    if name == "log.cleanup.policy":
        return _cleanup_policy(text)
    if name == "max.connections.per.ip.overrides":
        return _per_ip_overrides(text) if text.strip() else {}
    (item,) = (f for f in dataclasses.fields(BrokerConfig) if f.name.replace("_", ".") == name)
    return _checked(name, text.strip(), _PARSERS[_HINTS[item.name]], item.metadata)


def parse_super_users(text: str) -> frozenset[str]:
    """Read ``User:admin;User:CN=admin,O=x``; the first colon of each ends its type. Raises ConfigError."""
    found = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in sorted(found):
        if not all(principal.partition(":")):
            raise ConfigError(f"super.users={text}: {principal!r} is not of the form Type:name")
    return found


def _cleanup_policy(text: str) -> frozenset[str]:
    policy = frozenset(part.strip() for part in text.split(","))
    if not policy <= {"delete", "compact"}:
        raise ConfigError(f"log.cleanup.policy={text}: must be delete, compact or both")
    return policy


def _derive(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Decide the settings that several properties decide together."""
    if version := given.get("inter.broker.protocol.version"):
        values["inter_broker_protocol_version"] = parse_protocol_version(version)
        values.setdefault("log_message_format_version", values["inter_broker_protocol_version"])
    if version := given.get("log.message.format.version"):
        try:
            record_format_of(version)
        except ValueError as e:
            raise ConfigError(f"log.message.format.version={version}: {e}") from e
    endpoints.refuse_foreign_classes(given)
    protocols = endpoints.DEFAULT_PROTOCOL_MAP
    if text := given.get("listener.security.protocol.map"):
        protocols = endpoints.parse_protocol_map(text)
    bound = endpoints.bound_listeners(given, protocols)
    advertised = endpoints.advertised_listeners(given, bound, protocols)
    values["listeners"], values["advertised_listeners"] = bound, advertised
    name = values["inter_broker_listener_name"] = endpoints.inter_broker_listener(given, advertised)
    (endpoint,) = (e for e in advertised if e.listener == name)
    values["inter_broker_security"] = inter_broker_security(given, endpoint)
    if dirs := [d.strip() for d in (given.get("log.dirs") or given.get("log.dir", "")).split(",") if d.strip()]:
        values["log_dirs"] = tuple(Path(d) for d in dirs)
    if users := given.get("super.users"):
        parse_super_users(users)
    if principals := given.get("kt.inter.broker.principals"):
        values["kt_inter_broker_principals"] = _inter_broker_principals(principals)
    if others := given.get("kt.inter.broker.also.on"):
        values["kt_inter_broker_also_on"] = endpoints.listeners_named("kt.inter.broker.also.on", others, bound)
    if (other := given.get("authorizer.zookeeper.url")) and other != values["zookeeper_connect"]:
        raise ConfigError(f"authorizer.zookeeper.url={other}: ACLs are read from zookeeper.connect alone")
    if policy := given.get("log.cleanup.policy"):
        values["log_cleanup_policy"] = _cleanup_policy(policy)
    if overrides := given.get("max.connections.per.ip.overrides"):
        values["max_connections_per_ip_overrides"] = _per_ip_overrides(overrides)
    values.setdefault("zookeeper_connection_timeout_ms", values.get("zookeeper_session_timeout_ms", 6000))
    for name, units in COARSER.items():
        _duration(values, given, name, units)
    if "log_flush_interval_ms" not in values and "log_flush_scheduler_interval_ms" in values:
        values["log_flush_interval_ms"] = values["log_flush_scheduler_interval_ms"]
    if "transactional_id_expiration_ms" in values:
        values.setdefault("producer_id_expiration_ms", values["transactional_id_expiration_ms"])


def _duration(values: dict[str, Any], given: Mapping[str, str], name: str, coarser: Mapping[str, int]) -> None:
    """Take the finest unit given; a negative number means no limit in every unit."""
    key = name.replace(".", "_")
    if key in values:
        return
    for other, unit_ms in coarser.items():
        if text := given.get(other):
            number = _checked(other, text, int, {})
            values[key] = number * unit_ms if number >= 0 else -1
            return


def _inter_broker_principals(text: str) -> dict[int, str]:
    """Read ``1=User:CN=b1,O=x;2=User:CN=b2``. Raises ConfigError."""
    found: dict[int, str] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        broker_id, _, principal = part.partition("=")
        if not broker_id.strip().isdecimal() or not all(principal.strip().partition(":")):
            raise ConfigError(f"kt.inter.broker.principals={text}: {part!r} is not of the form id=Type:name")
        if int(broker_id) in found:
            raise ConfigError(f"kt.inter.broker.principals={text}: broker {int(broker_id)} is named twice")
        found[int(broker_id)] = principal.strip()
    return found


def _per_ip_overrides(text: str) -> dict[str, int]:
    found = {}
    for entry in text.split(","):
        host, _, limit = entry.strip().rpartition(":")
        if not host or not limit.isdecimal():
            raise ConfigError(f"max.connections.per.ip.overrides: {entry!r} is not host:number")
        found[host] = int(limit)
    return found
