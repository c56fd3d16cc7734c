"""The settings of a broker and of a topic as administrators see them: value, source, and the sources behind that.

Source: Kafka 2.3.1 server/AdminManager.scala (describeConfigs), server/KafkaServer.scala, log/LogConfig.scala.
"""

import dataclasses
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.core.model.topic_configs import CONFIGS, MESSAGE_FORMAT_VERSION
from kafkatool.core.model.values import Endpoint


class ConfigSource(enum.IntEnum):
    """The source of a value, as DescribeConfigs says it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A source of the value, or one that would be if those before it did not have it."""

    name: str
    value: str | None
    source: ConfigSource


class Setting(NamedTuple):
    """One setting; ``synonyms`` begin with the source that counts."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]


DYNAMIC_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Settings a broker takes over from its node in ZooKeeper while it runs (BRK-76); bytes per second."""

_BROKER_NAMES: Final[Mapping[str, str]] = {  # topic config -> the broker's property
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
_COARSER: Final[Mapping[str, tuple[str, ...]]] = {  # other spellings of one property, by what wins over what
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.dirs": ("log.dir",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
}


def topic_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Setting]:
    """List every topic config by name: the topic's own value, else this broker's."""
    return [_topic_setting(config, name, overrides.get(name)) for name in CONFIGS]


def _topic_setting(config: BrokerConfig, name: str, override: str | None) -> Setting:
    synonyms = [Synonym(name, override, ConfigSource.TOPIC)] if override is not None else []
    if broker_name := _BROKER_NAMES.get(name):
        synonyms += _broker_synonyms(config, broker_name)
        inherited = _text_of(getattr(config, broker_name.replace(".", "_")))
    else:
        inherited = config.inter_broker_protocol_version if name == MESSAGE_FORMAT_VERSION else ""
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return Setting(name, inherited if override is None else override, source, False, tuple(synonyms))


def broker_settings(config: BrokerConfig, dynamic: Mapping[str, str]) -> list[Setting]:
    """List every property of this broker by name; ``dynamic`` are those of its node in ZooKeeper."""
    names = [f.name.replace("_", ".") for f in dataclasses.fields(config) if f.name != "properties"]
    settings = [_broker_setting(config, name) for name in names]
    settings += [_rate(name, dynamic.get(name)) for name in DYNAMIC_RATES]
    return sorted(settings)


def _broker_setting(config: BrokerConfig, name: str) -> Setting:
    synonyms = tuple(_broker_synonyms(config, name))
    value = _text_of(getattr(config, name.replace(".", "_")))
    return Setting(name, value, synonyms[0].source if synonyms else ConfigSource.DEFAULT, True, synonyms)


def _rate(name: str, value: str | None) -> Setting:
    default = Synonym(name, str(NO_LIMIT), ConfigSource.DEFAULT)
    if value is None:
        return Setting(name, default.value, default.source, False, (default,))
    stored = Synonym(name, value, ConfigSource.DYNAMIC_BROKER)
    return Setting(name, value, stored.source, False, (stored, default))


def _broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """List the values in the broker's file under any spelling, then the default."""
    given = config.properties
    spellings = (name, *_COARSER.get(name, ()))
    synonyms = [Synonym(n, given[n].strip(), ConfigSource.STATIC_BROKER) for n in spellings if given.get(n, "").strip()]
    default = _DEFAULTS[name.replace(".", "_")]
    if default is not dataclasses.MISSING:
        synonyms.append(Synonym(name, _text_of(default), ConfigSource.DEFAULT))
    return synonyms


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


_DEFAULTS: Final = {f.name: _default(f) for f in dataclasses.fields(BrokerConfig)}


def _text_of(value: Any) -> str | None:
    """Write a value as it would stand in a properties file."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case Endpoint():
            host = f"[{value.host}]" if ":" in value.host else value.host
            return f"{value.listener}://{host}:{value.port}"
        case frozenset() | tuple():
            texts = [str(_text_of(item)) for item in value]
            return ",".join(sorted(texts) if isinstance(value, frozenset) else texts)
        case Mapping():
            return ",".join(f"{key}:{item}" for key, item in value.items())
        case Path():
            return str(value)
    return str(value)
