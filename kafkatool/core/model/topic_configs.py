"""The topic configs that may be overridden: names, types, ranges, and Kafka's words for what is wrong (TOP-20 to TOP-22).

Values are stored as the text that was given; the broker's defaults are its own (``BrokerConfig``). Ranges are those of
Kafka 0.10.2.1 (LogConfig.scala), texts those of its ConfigDef.java.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import RefusedError

LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
MIN_COMPACTION_LAG: Final = "min.compaction.lag.ms"
MAX_COMPACTION_LAG: Final = "max.compaction.lag.ms"

_DECIMAL: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_THROTTLED: Final = re.compile(r"(\d+:\d+)?", re.ASCII)


class _RefusedValueError(Exception):
    """A refused value. Its arguments are the value as Kafka prints it once parsed, and the reason."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config. ``check`` raises _RefusedValueError for a value that is not of its type or out of its range."""

    name: str
    kind: str
    meaning: str
    check: Callable[[str], None]


def _whole(bits: int, type_name: str, low: int | None) -> Callable[[str], None]:
    def check(text: str) -> None:
        value = int(text) if _WHOLE.fullmatch(text) else None
        if value is None or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise _RefusedValueError(text, f"Not a number of type {type_name}")
        if low is not None and value < low:
            raise _RefusedValueError(str(value), f"Value must be at least {low}")

    return check


def _long(name: str, meaning: str, low: int | None = 0) -> TopicConfig:
    return TopicConfig(name, "long", meaning, _whole(64, "LONG", low))


def _int(name: str, meaning: str, low: int = 0) -> TopicConfig:
    return TopicConfig(name, "int", meaning, _whole(32, "INT", low))


def _ratio(text: str) -> None:
    if not _DECIMAL.fullmatch(text):
        raise _RefusedValueError(text, "Not a number of type DOUBLE")
    if not 0 <= (value := float(text)) <= 1:
        raise _RefusedValueError(
            repr(value), "Value must be at least 0" if value < 0 else "Value must be no more than 1"
        )


def _boolean(text: str) -> None:
    if text.lower() not in ("true", "false"):
        raise _RefusedValueError(text, "Expected value to be either true or false")


def _one_of(*allowed: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text not in allowed:
            raise _RefusedValueError(text, f"String must be one of: {', '.join(allowed)}")

    return check


def _policy(text: str) -> None:
    for part in text.split(","):
        _one_of("compact", "delete")(part.strip())


def _text(text: str) -> None:
    """Accept any text: Kafka checks it only when a log is opened."""


def _throttled(name: str, meaning: str) -> TopicConfig:
    def check(text: str) -> None:
        parts = [part.strip() for part in text.split(",")]
        if parts[0] != "*" and not all(_THROTTLED.fullmatch(part) for part in parts):
            wanted = "[partitionId],[brokerId]:[partitionId],[brokerId]:[partitionId],[brokerId] etc"
            raise _RefusedValueError(f"[{', '.join(parts)}]", f"{name}  must match for format {wanted}")

    return TopicConfig(name, "list", meaning, check)


DOCUMENTED: Final = (
    TopicConfig("cleanup.policy", "list", "delete old segments, compact to the last value per key, or both", _policy),
    _long("delete.retention.ms", "how long tombstones stay in a compacted log"),
    _long("file.delete.delay.ms", "wait before a removed file leaves the disk"),
    _long("flush.messages", "messages between forced fsyncs"),
    _long("flush.ms", "time between forced fsyncs"),
    _int("index.interval.bytes", "log bytes per offset-index entry"),
    _int("max.message.bytes", "largest message or batch accepted"),
    TopicConfig("min.cleanable.dirty.ratio", "double", "dirty share that starts compaction", _ratio),
    _int("min.insync.replicas", "ISR size below which acks=all writes fail", low=1),
    _long("retention.bytes", "size bound per partition, -1 none", low=None),
    _long("retention.ms", "age bound, -1 none", low=None),
    _int("segment.bytes", "segment file size", low=14),
    _int("segment.index.bytes", "index file size"),
    _long("segment.jitter.ms", "random part taken off the roll time"),
    _long("segment.ms", "roll a segment at this age"),
    TopicConfig("unclean.leader.election.enable", "boolean", "may a replica outside the ISR lead", _boolean),
)
"""The sixteen of TOP-21, by name."""

ACCEPTED: Final = (
    _throttled(LEADER_THROTTLED_REPLICAS, "replicas throttled while they are read from: * or partition:broker,…"),
    _throttled(FOLLOWER_THROTTLED_REPLICAS, "replicas throttled while they are written: * or partition:broker,…"),
    TopicConfig(
        "compression.type",
        "string",
        "codec of stored batches",
        _one_of("uncompressed", "snappy", "lz4", "gzip", "zstd", "producer"),
    ),
    TopicConfig("message.format.version", "string", "records are written as Kafka of that version does", _text),
    TopicConfig("message.downconversion.enable", "boolean", "serve consumers that know only older formats", _boolean),
    TopicConfig("message.timestamp.type", "string", "whose clock", _one_of("CreateTime", "LogAppendTime")),
    _long("message.timestamp.difference.max.ms", "how far a producer's timestamp may be off"),
    _long(MIN_COMPACTION_LAG, "how long a message stays uncompacted"),
    _long(MAX_COMPACTION_LAG, "longest a message may stay uncompacted", low=1),
    TopicConfig("preallocate", "boolean", "make segment files at full size", _boolean),
)
"""Also stored (TOP-22)."""

CONFIGS: Final[Mapping[str, TopicConfig]] = {c.name: c for c in sorted((*DOCUMENTED, *ACCEPTED), key=lambda c: c.name)}


LATER: Final[Mapping[str, str]] = {
    "local.retention.bytes": "3.6",
    "local.retention.ms": "3.6",
    "message.timestamp.after.max.ms": "3.6",
    "message.timestamp.before.max.ms": "3.6",
    "remote.storage.enable": "3.6",
    "compression.gzip.level": "3.8",
    "compression.lz4.level": "3.8",
    "compression.zstd.level": "3.8",
    "remote.copy.disable": "3.9",
    "remote.log.delete.on.disable": "3.9",
}
"""Configs of later Kafkas, and the version that brought them: brokers alone judge their values."""


def unknown_names(names: Iterable[str]) -> list[str]:
    """Return those that kt itself does not know: the brokers may."""
    return [name for name in names if name not in CONFIGS]


def check_names(names: Iterable[str], also: Collection[str] = ()) -> None:
    """Raise RefusedError at the first name that is no topic config, nor one of ``also`` (TOP-21)."""
    for name in names:
        if name not in CONFIGS and name not in also:
            raise RefusedError(f"Unknown Log configuration {name}.", now=_near(name, {*CONFIGS, *also}))


def _near(name: str, known: Collection[str]) -> str:
    import difflib

    alike = difflib.get_close_matches(name, known, n=3) or sorted(known)
    return f"there {'is' if len(alike) == 1 else 'are'} {', '.join(alike)}"


def check_configs(configs: Mapping[str, str], also: Collection[str] = ()) -> None:
    """Check names first, then values, as Kafka does; names of ``also`` with any value. Raises RefusedError, Kafka's text."""
    check_names(configs, also)
    for name, value in configs.items():
        if name not in CONFIGS:
            continue
        try:
            CONFIGS[name].check(value.strip())
        except _RefusedValueError as e:
            shown, why = e.args
            raise RefusedError(f"Invalid value {shown} for configuration {name}: {why}") from None
    check_together(configs)


def check_together(configs: Mapping[str, str]) -> None:
    """Check what two values, each right by itself, say together. Raises RefusedError with Kafka's text (KIP-354)."""
    texts = [configs.get(name, "").strip() for name in (MIN_COMPACTION_LAG, MAX_COMPACTION_LAG)]
    if not all(_WHOLE.fullmatch(text) for text in texts):
        return  # one is not set, or was stored by somebody who did not check it
    least, most = map(int, texts)
    if least > most:
        raise RefusedError(
            f"conflict topic config setting {MIN_COMPACTION_LAG} ({least}) > {MAX_COMPACTION_LAG} ({most})"
        )


def parse_configs(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``k=v`` texts of ``--config`` and check the values of those kt knows; a later one of a name wins (TOP-20).

    A value cannot contain ``=``. Raises RefusedError with Kafka's text.
    """
    configs = {}
    for pair in pairs:
        parts = [part.strip() for part in pair.split("=")]
        if len(parts) != 2 or not all(parts):
            raise RefusedError('Invalid topic config: all configs to be added must be in the format "key=val".')
        configs[parts[0]] = parts[1]
    check_configs(configs, also=unknown_names(configs))
    return configs
