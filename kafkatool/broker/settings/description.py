"""The settings of a broker and of a topic as administrators see them: value, source, and the sources behind that.

Source: Kafka 2.3.1 server/AdminManager.scala (describeConfigs), server/KafkaServer.scala, log/LogConfig.scala.
"""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_origin, get_type_hints

from kafkatool.broker.settings.config import COARSER, NO_LIMIT, BrokerConfig
from kafkatool.broker.settings.documentation import LONGS, MEANINGS, SHORTS, ConfigType
from kafkatool.broker.settings.listeners import LISTENER_PROPERTIES, is_read_of_one_listener
from kafkatool.core.model.topic_configs import CONFIGS
from kafkatool.core.model.values import Endpoint


class ConfigSource(enum.IntEnum):
    """The source of a value, as DescribeConfigs says it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
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
    read_only: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str
    is_sensitive: bool = False  # then no value is told

    @property
    def source(self) -> ConfigSource:
        """Return the source of the value."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


DYNAMIC_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Settings a broker takes over from its node in ZooKeeper while it runs (BRK-76, ADM-69); bytes per second."""

BROKER_NAMES: Final[Mapping[str, str]] = {  # topic config -> the broker's property
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
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
THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
"""Numbers of threads, of which each change is at most to the double or the half."""

DYNAMIC_SETTINGS: Final = frozenset(BROKER_NAMES.values()) - {"log.message.format.version"} | {
    *THREAD_COUNTS,
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
}
"""Settings that a broker takes over while it runs, from its own node or from the one of all brokers (KIP-226)."""

_SECRETS: Final = (
    *(".password", "sasl.jaas.config", "password.encoder.secret"),
    *("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"),
)
_READ: Final = LISTENER_PROPERTIES | BrokerConfig.property_names() | {"zookeeper.set.acl", "zookeeper.clientCnxnSocket"}
_DEFAULT_OF: Final = {broker_name: name for name, broker_name in BROKER_NAMES.items()}
_HINTS: Final = get_type_hints(BrokerConfig)
_TYPES: Final = {  # all others are texts, also the lists of addresses and directories
    bool: ConfigType.BOOLEAN,
    int: ConfigType.INT,
    float: ConfigType.DOUBLE,
    frozenset: ConfigType.LIST,
}
_COARSER: Final[Mapping[str, tuple[str, ...]]] = {  # other spellings of one property, by what wins over what
    **{name: tuple(spellings) for name, spellings in COARSER.items()},
    "log.dirs": ("log.dir",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "producer.id.expiration.ms": ("transactional.id.expiration.ms",),
}


class BrokerOverrides(NamedTuple):
    """The settings of a broker that ZooKeeper has: its own, and those of all brokers, which yield to them (KIP-226)."""

    own: Mapping[str, str]
    default: Mapping[str, str]

    def synonyms(self, name: str) -> list[Synonym]:
        """List where that setting is found, what counts first."""
        layers = ((self.own, ConfigSource.DYNAMIC_BROKER), (self.default, ConfigSource.DYNAMIC_DEFAULT))
        return [Synonym(name, layer[name], source) for layer, source in layers if name in layer]


def topic_settings(config: BrokerConfig, overrides: Mapping[str, str], dynamic: BrokerOverrides) -> list[Setting]:
    """List every topic config by name: the topic's own value, else this broker's."""
    return [_topic_setting(config, name, overrides.get(name), dynamic) for name in CONFIGS]


def _topic_setting(config: BrokerConfig, name: str, override: str | None, dynamic: BrokerOverrides) -> Setting:
    synonyms = [Synonym(name, override, ConfigSource.TOPIC)] if override is not None else []
    if broker_name := BROKER_NAMES.get(name):
        changed = dynamic.synonyms(broker_name)
        synonyms += changed + _broker_synonyms(config, broker_name)
        inherited = changed[0].value if changed else _text_of(getattr(config, broker_name.replace(".", "_")))
    else:
        inherited = ""
    value = inherited if override is None else override
    kind = ConfigType[CONFIGS[name].kind.upper()]
    return Setting(name, value, False, tuple(synonyms), kind, CONFIGS[name].meaning)


def default_settings(default: Mapping[str, str]) -> list[Setting]:
    """List what is set for all brokers of the cluster."""
    return [
        Setting(
            name, value, False, (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT),), _type_of(name), meaning_of(name)
        )
        for name, value in sorted(default.items())
        if name in DYNAMIC_SETTINGS
    ]


def broker_settings(config: BrokerConfig, dynamic: BrokerOverrides) -> list[Setting]:
    """List every property of this broker by name; ``config`` is what it was started with."""
    names = [f.name.replace("_", ".") for f in dataclasses.fields(config) if not f.metadata.get("derived")]
    settings = [_broker_setting(config, name, dynamic) for name in names]
    settings += [_rate(name, dynamic.own.get(name)) for name in DYNAMIC_RATES]
    told = {*names, *DYNAMIC_RATES, *(spelling for spellings in _COARSER.values() for spelling in spellings)}
    return sorted(settings + [_given(name, value) for name, value in config.properties.items() if name not in told])


def _given(name: str, value: str) -> Setting:
    """Show a property that stands in the file alone; without its value where that is a secret, or may be one (SEC-43).

    What nobody here knows the name of may be.
    """
    if is_secret(name):
        told, kind, meaning = None, ConfigType.PASSWORD, "a secret: only its name is told"
    elif _is_known(name):
        told, kind, meaning = value, ConfigType.STRING, "of the listeners, or of the login to ZooKeeper"
    else:
        told, kind, meaning = None, ConfigType.STRING, "not known to this broker: its value may be a secret"
    synonym = Synonym(name, told, ConfigSource.STATIC_BROKER)
    return Setting(name, told, True, (synonym,), kind, meaning, is_sensitive=told is None)


def _is_known(name: str) -> bool:
    """Tell whether a broker reads a property that is no setting of ``BrokerConfig``: a listener's, or ZooKeeper's login."""
    return name in _READ or is_read_of_one_listener(name, _READ) or name.startswith("zookeeper.ssl.")


def is_secret(name: str) -> bool:
    """Tell whether a property holds a secret by its name, for all listeners or for one (SEC-43)."""
    return name.endswith(_SECRETS)


def _broker_setting(config: BrokerConfig, name: str, dynamic: BrokerOverrides) -> Setting:
    changed = dynamic.synonyms(name) if name in DYNAMIC_SETTINGS else []
    value = changed[0].value if changed else _text_of(getattr(config, name.replace(".", "_")))
    synonyms = (*changed, *_broker_synonyms(config, name))
    return Setting(name, value, name not in DYNAMIC_SETTINGS, synonyms, _type_of(name), meaning_of(name))


def meaning_of(name: str) -> str:
    """Return what a broker's property is for."""
    if topic_config := _DEFAULT_OF.get(name):
        return f"{CONFIGS[topic_config].meaning}; for topics without a {topic_config} of their own"
    return MEANINGS.get(name, "")


def _type_of(name: str) -> ConfigType:
    if name in LONGS:
        return ConfigType.LONG
    if name in SHORTS:
        return ConfigType.SHORT
    return _TYPES.get(get_origin(_HINTS[name.replace(".", "_")]) or _HINTS[name.replace(".", "_")], ConfigType.STRING)


def _rate(name: str, value: str | None) -> Setting:
    synonyms = [] if value is None else [Synonym(name, value, ConfigSource.DYNAMIC_BROKER)]
    synonyms.append(Synonym(name, str(NO_LIMIT), ConfigSource.DEFAULT))
    return Setting(name, synonyms[0].value, False, tuple(synonyms), ConfigType.LONG, meaning_of(name))


def _broker_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """List the values in the broker's file under any spelling, then the default."""
    given = config.properties
    spellings = (name, *_COARSER.get(name, ()))
    synonyms = [Synonym(n, given[n].strip(), ConfigSource.STATIC_BROKER) for n in spellings if given.get(n, "").strip()]
    default = _DEFAULTS[name.replace(".", "_")]
    if default is not dataclasses.MISSING:
        synonyms.append(Synonym(name, _text_of(default), ConfigSource.DEFAULT))
    return synonyms


_DEFAULTS: Final = {
    f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
    for f in dataclasses.fields(BrokerConfig)
}


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
    return str(value)
