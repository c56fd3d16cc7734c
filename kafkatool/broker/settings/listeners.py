"""Listener settings: the sockets to bind, the addresses to advertise, the listener of the brokers (BRK-6, 120, SEC-46, 47).

Source: Kafka 2.8.0 server/KafkaConfig.scala, cluster/EndPoint.scala.
"""

import logging
import re
from collections.abc import Container, Mapping

from kafkatool.core.errors import ConfigError
from kafkatool.core.model.security_protocols import SECURITY_PROTOCOLS
from kafkatool.core.model.values import Endpoint

log = logging.getLogger(__name__)

_PREFIX = "listener.name."
_LISTENER = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\[\]:]*)):(?P<port>\d+)")
DEFAULT_PROTOCOL_MAP = {name: name for name in SECURITY_PROTOCOLS}


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read ``NAME:PROTOCOL,...``: listener name -> security protocol, both upper-case."""
    found = {}
    for entry in filter(None, (e.strip() for e in text.split(","))):
        name, _, protocol = entry.upper().partition(":")
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL")
        found[name] = protocol
    return found


def parse_listeners(setting: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Read ``NAME://host:port,...``; an empty host stays empty. Raises ConfigError, also on a name given twice."""
    endpoints: list[Endpoint] = []
    for entry in filter(None, (e.strip() for e in text.split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{setting}: {entry!r} is not of the form LISTENER://host:port")
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(f"{setting}: listener {name} has no entry in listener.security.protocol.map")
        if any(e.listener == name for e in endpoints):
            raise ConfigError(f"{setting}: listener {name} is given twice")
        host = match["v6"] if match["v6"] is not None else match["host"]
        endpoints.append(Endpoint(name, host, int(match["port"]), protocols[name]))
    if not endpoints:
        raise ConfigError(f"{setting} names no listener")
    return tuple(endpoints)


def bound_listeners(given: Mapping[str, str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Read ``listeners``, else the old ``host.name`` and ``port``."""
    text = given.get("listeners") or f"PLAINTEXT://{given.get('host.name', '')}:{given.get('port', '9092')}"
    endpoints = parse_listeners("listeners", text, protocols)
    ports = [e.port for e in endpoints if e.port]
    if len(set(ports)) < len(ports):
        raise ConfigError("listeners: each listener needs a port of its own")
    return endpoints


def advertised_listeners(
    given: Mapping[str, str], bound: tuple[Endpoint, ...], protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """Read ``advertised.listeners``, else the old ``advertised.host.name``/``.port``, else the bound ones.

    An empty host and port 0 are filled in when registering (Z-9).
    """
    if given.get("advertised.listeners"):
        return parse_listeners("advertised.listeners", given["advertised.listeners"], protocols)
    if "listeners" in given or not {"advertised.host.name", "advertised.port"} & given.keys():
        return bound
    host = given.get("advertised.host.name", bound[0].host)
    port = given.get("advertised.port", str(bound[0].port))
    return parse_listeners("advertised.port", f"PLAINTEXT://{host}:{port}", protocols)


def inter_broker_listener(given: Mapping[str, str], advertised: tuple[Endpoint, ...]) -> str:
    """Return the name of the listener that brokers use among themselves; it must be advertised (SEC-47)."""
    name = given.get("inter.broker.listener.name", "").upper()
    protocol = given.get("security.inter.broker.protocol", "").upper()
    if name and protocol:
        raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol: only one of them can be set")
    match = next((e for e in advertised if e.listener == (name or protocol or "PLAINTEXT")), None)
    if match is None:
        asked = (
            f"inter.broker.listener.name={name}"
            if name
            else f"security.inter.broker.protocol={protocol or 'PLAINTEXT'}"
        )
        raise ConfigError(f"{asked}: no advertised listener of that name for the brokers themselves")
    if match.protocol.startswith("SASL"):
        mechanism = given.get("sasl.mechanism.inter.broker.protocol") or "GSSAPI"
        enabled = listener_properties(given, match.listener).get("sasl.enabled.mechanisms") or "GSSAPI"
        if mechanism not in [m.strip() for m in enabled.split(",")] or mechanism == "GSSAPI":
            raise ConfigError(
                f"sasl.mechanism.inter.broker.protocol={mechanism}: must be one of sasl.enabled.mechanisms of "
                f"{match.listener} that this broker serves"
            )
    return match.listener


def listeners_named(name: str, text: str, bound: tuple[Endpoint, ...]) -> frozenset[str]:
    """Read ``PLAINTEXT,OUTER``, names of listeners that are there. Raises ConfigError."""
    found = frozenset(part.strip().upper() for part in text.split(",") if part.strip())
    there = [endpoint.listener for endpoint in bound]
    if unknown := sorted(found.difference(there)):
        raise ConfigError(f"{name}={text}: no listener {', '.join(unknown)}; there are {', '.join(there)}")
    return found


def listener_properties(given: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the properties as one listener sees them: its own, by its prefix, before those of all."""
    prefix = f"{_PREFIX}{listener.lower()}."
    own = {key[len(prefix) :]: value for key, value in given.items() if key.lower().startswith(prefix)}
    return {key: value for key, value in given.items() if not key.startswith(_PREFIX)} | own


def is_listener_property(name: str, bound: tuple[Endpoint, ...]) -> bool:
    """Tell whether the property is one listener's own; of a listener that is not there a warning is logged."""
    if not name.startswith(_PREFIX):
        return False
    listener = name.removeprefix(_PREFIX).partition(".")[0]
    if listener.upper() not in [e.listener for e in bound]:
        log.warning("%s is ignored: there is no listener %s", name, listener.upper())
    return True


LISTENER_PROPERTIES = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "sasl.enabled.mechanisms",
        "connections.max.reauth.ms",
    }
)
"""What a listener takes from its own properties, else from those of all; DescribeConfigs tells no secret of it."""

_LOGINS = frozenset(
    f"{mechanism}.{name}"
    for mechanism in ("plain", "scram-sha-256", "scram-sha-512")
    for name in ("sasl.jaas.config", "connections.max.reauth.ms")
)


def is_read_of_one_listener(name: str, known: Container[str]) -> bool:
    """Tell whether the property is told of one listener, and is a ``known`` one, or a login, or its time, by mechanism."""
    of_listener = name.removeprefix(_PREFIX).partition(".")[2]
    return name.startswith(_PREFIX) and (of_listener in known or of_listener in _LOGINS)


_REFUSED = ("principal.builder.class", "ssl.engine.factory.class", "sasl.kerberos.principal.to.local.rules")


def refuse_foreign_classes(given: Mapping[str, str]) -> None:
    """Refuse what would decide who gets in and is not run here: to ignore it would let others in (SEC-71)."""
    for name, value in given.items():
        last = name.split(".", 3)[-1] if name.startswith(_PREFIX) else name
        foreign = last in _REFUSED or last.endswith("callback.handler.class")
        default = value in (
            "",
            "DEFAULT",
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        )
        if foreign and not default:
            raise ConfigError(f"{name}={value} is not served by this broker")
