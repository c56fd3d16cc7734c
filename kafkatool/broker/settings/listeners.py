"""Listener settings: the sockets to bind, the addresses to advertise, the listener of the brokers (BRK-6, 120).

Source: Kafka 1.1.1 server/KafkaConfig.scala, cluster/EndPoint.scala.
"""

import re
from collections.abc import Mapping

from kafkatool.core.errors import ConfigError
from kafkatool.core.model.security_protocols import SECURITY_PROTOCOLS
from kafkatool.core.model.values import Endpoint

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
    """Read ``listeners``, else the old ``host.name`` and ``port``. Only PLAINTEXT is served."""
    text = given.get("listeners") or f"PLAINTEXT://{given.get('host.name', '')}:{given.get('port', '9092')}"
    endpoints = parse_listeners("listeners", text, protocols)
    for endpoint in endpoints:
        if endpoint.protocol != "PLAINTEXT":
            raise ConfigError(f"listeners: {endpoint.listener} uses {endpoint.protocol}; only PLAINTEXT is served")
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
    """Return the name of the listener that brokers use among themselves; it must be advertised."""
    name = given.get("inter.broker.listener.name", "").upper()
    protocol = given.get("security.inter.broker.protocol", "PLAINTEXT").upper()
    match = next((e for e in advertised if e.listener == name or (not name and e.protocol == protocol)), None)
    if match is None:
        raise ConfigError(f"no advertised listener for the brokers themselves ({name or protocol})")
    return match.listener
