"""Settings of one log: the topic's overrides over the broker's defaults."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.settings.description import BROKER_NAMES
from kafkatool.broker.settings.protocol_versions import record_format_of
from kafkatool.core.protocol.records.compression import Codec

log = logging.getLogger(__name__)

RECORD_BATCHES = 2
"""The first format of record batches; those below are of entries (ADM-89)."""

_INT_MAX = 2**31 - 1
_CODECS: Mapping[str, int | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One log's settings; a field is its topic config's name with ``_`` for ``.``. NO_LIMIT and -1 switch a rule off."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    retention_ms: int
    retention_bytes: int
    cleanup_policy: frozenset[str]
    min_cleanable_dirty_ratio: float
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    preallocate: bool
    max_message_bytes: int
    compression_type: str
    message_downconversion_enable: bool
    message_format_version: str
    message_timestamp_type: str
    message_timestamp_difference_max_ms: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    validate_all_records: bool
    """``kt.validate.records=full``, a broker setting: unpack every batch before it is appended."""
    record_format: int
    """0, 1 or 2: the format of what is appended here; ``message.format.version``, but none that brokers of
    ``inter.broker.protocol.version`` do not know (ADM-89). What lies in the log is of the format it was written in."""
    max_records_per_batch: int
    """``kt.max.records.per.batch``, a broker setting."""

    @classmethod
    def from_broker(cls, config: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """Take the broker's defaults, then the topic's own.

        A name this broker does not know is ignored with a warning: the topic may have been made by a newer one. So is
        a value it cannot use: one topic's slip must keep neither the broker down nor its other partitions from serving.
        """
        values: dict[str, Any] = {
            name.replace(".", "_"): getattr(config, broker_name.replace(".", "_"))
            for name, broker_name in BROKER_NAMES.items()
        }
        for name, text in overrides.items():
            parse = _PARSERS.get(name)
            if parse is None:
                log.warning("topic config %s=%s is not supported and ignored", name, text)
                continue
            try:
                values[name.replace(".", "_")] = parse(text.strip())
            except ValueError as e:
                log.error("topic config %s=%s cannot be used, the broker's default counts: %s", name, text, e)
        version, spoken = values["message_format_version"], config.inter_broker_protocol_version
        return cls(
            **values,
            validate_all_records=config.kt_validate_records == "full",
            record_format=min(record_format_of(version), record_format_of(spoken)),
            max_records_per_batch=config.kt_max_records_per_batch,
        )

    def __str__(self) -> str:
        """Return the topic configs and their values, as the documents show them in the log."""
        return ", ".join(f"{name} -> {_shown(getattr(self, name.replace('.', '_')))}" for name in _PARSERS)

    @property
    def compacted(self) -> bool:
        """Tell whether the newest record of each key is kept for good."""
        return "compact" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """Return the age at which a segment is rolled: what stays in it cannot be compacted (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def codec(self) -> int | None:
        """Return the codec that batches are stored in; None: whatever their producers chose."""
        return _CODECS[self.compression_type]

    @property
    def needs_records(self) -> bool:
        """Tell whether a produced batch must be unpacked before it is appended."""
        return (
            self.validate_all_records
            or "compact" in self.cleanup_policy
            or self.message_timestamp_difference_max_ms != NO_LIMIT
        )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(sorted(value)) if isinstance(value, frozenset | tuple) else str(value)


def _number(low: int, high: int = NO_LIMIT) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1")
    return value


def _choice(*allowed: str) -> Any:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return parse


def _boolean(text: str) -> bool:
    return bool(_choice("true", "false")(text.lower()) == "true")


def _version(text: str) -> str:
    record_format_of(text)
    return text


def _policy(text: str) -> frozenset[str]:
    return frozenset(_choice("delete", "compact")(part.strip()) for part in text.split(","))


def _replicas(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: Mapping[str, Any] = {
    "segment.bytes": _number(14, _INT_MAX),
    "segment.ms": _number(0),
    "segment.jitter.ms": _number(0),
    "segment.index.bytes": _number(0, _INT_MAX),
    "retention.ms": int,  # negative: no limit
    "retention.bytes": int,
    "cleanup.policy": _policy,
    "min.cleanable.dirty.ratio": _ratio,
    "delete.retention.ms": _number(0),
    "min.compaction.lag.ms": _number(0),
    "max.compaction.lag.ms": _number(1),
    "file.delete.delay.ms": _number(0),
    "index.interval.bytes": _number(0, _INT_MAX),
    "flush.messages": _number(0),
    "flush.ms": _number(0),
    "preallocate": _boolean,
    "max.message.bytes": _number(0, _INT_MAX),
    "compression.type": _choice(*_CODECS),
    "message.downconversion.enable": _boolean,
    "message.format.version": _version,
    "message.timestamp.type": _choice("CreateTime", "LogAppendTime"),
    "message.timestamp.difference.max.ms": _number(0),
    "min.insync.replicas": _number(1, _INT_MAX),
    "unclean.leader.election.enable": _boolean,
    "leader.replication.throttled.replicas": _replicas,
    "follower.replication.throttled.replicas": _replicas,
}
