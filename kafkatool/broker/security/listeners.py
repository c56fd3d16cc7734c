"""What each listener asks of who connects to it, made of the properties: TLS, SASL, who a certificate is (SEC-46 to 71).

Read once, before anything is bound: what cannot be used refuses the start, naming property and listener.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from kafkatool.broker.security.login import SaslListener
from kafkatool.broker.security.mechanisms import PLAIN, SERVED, PlainUsers, ScramUsers, exchanges
from kafkatool.broker.security.principal import ANONYMOUS, USER, Principal
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.inter_broker import login_file_notes, login_module
from kafkatool.broker.settings.listeners import listener_properties
from kafkatool.core.errors import ConfigError
from kafkatool.core.model.values import Endpoint
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:  # a broker whose listeners are open starts without
    import ssl

    from kafkatool.core.security.tls import ClientAuth

log = logging.getLogger(__name__)

_NO_LIMIT = 2**31 - 1
_LOOPBACK = re.compile(r"127(\.\d+){3}|::1|localhost|0:0:0:0:0:0:0:1")


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """One listener's. Without ``context`` it is not encrypted, without ``sasl`` nobody logs in."""

    context: "ssl.SSLContext | None" = None
    identify: "Callable[[ssl.SSLSocket], Principal] | None" = None
    sasl: SaslListener | None = None
    max_connections: int = _NO_LIMIT

    @property
    def is_open(self) -> bool:
        """Tell whether a connection may ask at once."""
        return self.context is None and self.sasl is None


OPEN: Final = ListenerSecurity()


@dataclass(frozen=True, slots=True)
class VersionAnswers:
    """How ApiVersions is answered, also before a login."""

    answer: Callable[[ApiVersionsRequest, int], ApiVersionsResponse]
    answer_newer: Callable[[], ApiVersionsResponse]


def secure_listeners(
    config: BrokerConfig, scram_users: ScramUsers, versions: VersionAnswers
) -> dict[str, ListenerSecurity]:
    """Make the security of each listener. Raises ConfigError."""
    made = {}
    if any(endpoint.protocol.startswith("SASL") for endpoint in config.listeners):
        for note in login_file_notes(config.properties):
            log.warning("%s", note)
    for endpoint in config.listeners:
        properties = listener_properties(config.properties, endpoint.listener)
        made[endpoint.listener] = _secure(endpoint, properties, config, scram_users, versions)
    delay_ms, idle_ms = config.connection_failed_authentication_delay_ms, config.connections_max_idle_ms
    if 0 <= idle_ms <= delay_ms and not all(security.is_open for security in made.values()):
        raise ConfigError(
            f"connection.failed.authentication.delay.ms={delay_ms}: must be below connections.max.idle.ms={idle_ms}"
        )
    return made


def with_stores_read_again(
    config: BrokerConfig, securities: Mapping[str, ListenerSecurity]
) -> dict[str, ListenerSecurity]:
    """Return them with the keys and certificates that their stores hold now (SEC-61). Raises ConfigError."""
    made = dict(securities)
    for endpoint in config.listeners:
        if endpoint.protocol.endswith("SSL"):
            properties = listener_properties(config.properties, endpoint.listener)
            context, _ = _context(endpoint, properties, config)
            made[endpoint.listener] = replace(made[endpoint.listener], context=context)
    return made


def tell_of_expiries(config: BrokerConfig) -> None:
    """Say again which listeners' certificates have expired, or are about to: every day (SEC-54)."""
    for endpoint in config.listeners:
        if endpoint.protocol.endswith("SSL"):
            try:
                _context(endpoint, listener_properties(config.properties, endpoint.listener), config)
            except ConfigError as e:
                log.error("%s", e)


def scram_mechanisms(config: BrokerConfig) -> set[str]:
    """Return the mechanisms that some listener has: no other credentials are kept in memory (SEC-67)."""
    return {
        mechanism
        for endpoint in config.listeners
        if endpoint.protocol.startswith("SASL")
        for mechanism in enabled_mechanisms(endpoint, listener_properties(config.properties, endpoint.listener))
    }


def warn_of_open_doors(config: BrokerConfig) -> list[str]:
    """Return, and log, what is to be said of listeners at which anybody may do anything (SEC-52)."""
    warnings = []
    for endpoint in config.listeners:
        properties = listener_properties(config.properties, endpoint.listener)
        client_auth = properties.get("ssl.client.auth", "none").strip().lower()  # who is only requested needs none
        proves = endpoint.protocol.startswith("SASL") or client_auth == "required"
        if (endpoint.protocol == "PLAINTEXT" or not proves) and not _LOOPBACK.fullmatch(endpoint.host):
            warnings.append(
                f"listener {endpoint.listener} on {endpoint.host or '*'}:{endpoint.port}: anybody who can reach it may "
                "read, write and delete everything"
            )
    for warning in warnings:
        log.warning("%s", warning)
    return warnings


def warn_of_shared_places(config: BrokerConfig, securities: Mapping[str, ListenerSecurity]) -> None:
    """Log that clients may take the places of brokers, where a limit of connections counts both (SEC-95)."""
    most = min(config.max_connections, *(one.max_connections for one in securities.values()))
    if len(config.listeners) == 1 and most < _NO_LIMIT:
        log.warning(
            "max.connections=%d counts clients and brokers, as there is one listener: clients that take them all keep "
            "followers and controller out. Give brokers a listener of their own (inter.broker.listener.name)",
            most,
        )


def _secure(
    endpoint: Endpoint,
    properties: Mapping[str, str],
    config: BrokerConfig,
    scram_users: ScramUsers,
    versions: VersionAnswers,
) -> ListenerSecurity:
    context = identify = sasl = None
    if endpoint.protocol.endswith("SSL"):
        context, client_auth = _context(endpoint, properties, config)
        if endpoint.protocol == "SSL" and client_auth != "none":
            identify = _identify(endpoint, properties)
    if endpoint.protocol.startswith("SASL"):
        sasl = _sasl(endpoint, properties, config, scram_users, versions)
    limit = _number(endpoint, properties, "max.connections", _NO_LIMIT)
    return ListenerSecurity(context, identify, sasl, limit)


# --- TLS -------------------------------------------------------------------------------------------------------------


def _context(
    endpoint: Endpoint, properties: Mapping[str, str], config: BrokerConfig
) -> "tuple[ssl.SSLContext, ClientAuth]":
    from kafkatool.core.security.tls import read_tls_settings, server_context

    where = f"listener {endpoint.listener}"
    client_auth = properties.get("ssl.client.auth", "none").strip().lower() or "none"
    if client_auth not in ("none", "requested", "required"):
        raise ConfigError(f"{where}: ssl.client.auth={client_auth}: must be none, requested or required")
    prefixed = f"listener.name.{endpoint.listener.lower()}.ssl.client.auth"
    if endpoint.protocol == "SASL_SSL" and client_auth != "none" and prefixed not in config.properties:
        log.warning("%s: ssl.client.auth is ignored on SASL_SSL; to ask for certificates, set %s", where, prefixed)
        client_auth = "none"
    settings = read_tls_settings(properties, where)
    if settings.broken:  # clients that need them would be told of nowhere but here
        raise ConfigError(f"{where}: ssl.enabled.protocols: {', '.join(settings.broken)} is broken: leave it out")
    for note in settings.notes:
        log.warning("%s", note)
    try:
        context = server_context(settings, client_auth=cast("ClientAuth", client_auth))
    except ConfigError as e:
        raise ConfigError(f"{where}: {e}") from e
    if settings.key_pair is not None:
        _tell_of_dates(where, settings.key_pair.chain)
    return context, cast("ClientAuth", client_auth)


def _tell_of_dates(where: str, chain: bytes) -> None:
    """Say when the certificate has expired, or is about to; the start goes on (SEC-54)."""
    import datetime

    from cryptography import x509

    days_left = (
        x509.load_pem_x509_certificate(chain).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    ).total_seconds() / 86400
    if days_left <= 0:
        log.error("%s: its certificate has expired: clients refuse it", where)
    elif days_left < 30:
        log.warning("%s: its certificate expires in %d days", where, days_left)


def _identify(endpoint: Endpoint, properties: Mapping[str, str]) -> "Callable[[ssl.SSLSocket], Principal]":
    from kafkatool.broker.security.certificate_principals import parse_mapping_rules, subject_of

    rules = properties.get("ssl.principal.mapping.rules", "")
    name_of = parse_mapping_rules(rules, f"listener {endpoint.listener}: ssl.principal.mapping.rules")

    def identify(peer: "ssl.SSLSocket") -> Principal:
        certificate = peer.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = name_of(subject)
        if name is None:
            raise ConnectionRefusedError(f"no rule of ssl.principal.mapping.rules fits {subject!a}")
        return Principal(USER, name)

    return identify


# --- SASL ------------------------------------------------------------------------------------------------------------


def enabled_mechanisms(endpoint: Endpoint, properties: Mapping[str, str]) -> list[str]:
    """Return what clients may log in by. Raises ConfigError for what is not served (SEC-71)."""
    text = properties.get("sasl.enabled.mechanisms") or "GSSAPI"
    names = [name.strip() for name in text.split(",") if name.strip()]
    if other := [name for name in names if name not in SERVED]:
        raise ConfigError(
            f"listener {endpoint.listener}: sasl.enabled.mechanisms={text}: {', '.join(other)} is not served by this "
            f"broker; there are {', '.join(SERVED)}"
        )
    return names


def _sasl(
    endpoint: Endpoint,
    properties: Mapping[str, str],
    config: BrokerConfig,
    scram_users: ScramUsers,
    versions: VersionAnswers,
) -> SaslListener:
    enabled = enabled_mechanisms(endpoint, properties)
    users: dict[str, str] = {}
    if PLAIN in enabled:
        module = login_module(config.properties, endpoint.listener, PLAIN)
        users = {k[5:]: module.options[k].reveal() for k in module.options if k.startswith("user_")}
    reauth = "connections.max.reauth.ms"
    every_ms = _number(endpoint, properties, reauth, 0)
    lifetimes_ms = {name: _number(endpoint, properties, f"{name.lower()}.{reauth}", every_ms) for name in enabled}
    made = exchanges(enabled, PlainUsers(users), scram_users)
    return SaslListener(endpoint.listener, made, lifetimes_ms, versions.answer, versions.answer_newer)


def _number(endpoint: Endpoint, properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise ConfigError(f"listener {endpoint.listener}: {name}={text}: expected a number")
    return int(text)
