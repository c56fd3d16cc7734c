"""How a broker logs in: the module of a listener and mechanism, what its connections to others need (SEC-48, 64)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkatool.broker.settings.listeners import listener_properties
from kafkatool.core.errors import ConfigError
from kafkatool.core.model.values import Endpoint
from kafkatool.core.security.client_security import ClientSecurity, Login

if TYPE_CHECKING:  # a broker whose listeners are open starts without
    from kafkatool.core.security.jaas import LoginModule

_PLAIN = "PLAIN"


def login_module(given: Mapping[str, str], listener: str, mechanism: str) -> "LoginModule":
    """Return the login module of a listener and mechanism: the users of PLAIN, the broker's own login (SEC-64).

    ``listener.name.<l>.<mechanism>.sasl.jaas.config``, else section ``<l>.KafkaServer``, else ``KafkaServer`` of the
    JAAS file. Raises ConfigError.
    """
    from kafkatool.core.security.credential_files import read_credential_file
    from kafkatool.core.security.jaas import parse_jaas, parse_module

    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if text := given.get(name):
        return parse_module(text, name)
    if (path := _jaas_file(given)) is not None:
        sections = parse_jaas(read_credential_file(path).text, str(path))
        last_part = "PlainLoginModule" if mechanism == _PLAIN else "ScramLoginModule"
        for section in (f"{listener.lower()}.KafkaServer", "KafkaServer"):
            for module in sections.get(section, ()):
                if module.short_name == last_part:
                    return module
    raise ConfigError(
        f"listener {listener}: {mechanism} needs {name}, or a section KafkaServer in the file of kt.jaas.config"
    )


def inter_broker_security(given: Mapping[str, str], endpoint: Endpoint) -> ClientSecurity | None:
    """Return what connections to other brokers' inter-broker listener need; None on PLAINTEXT. Raises ConfigError."""
    if endpoint.protocol == "PLAINTEXT":
        return None
    from kafkatool.core.security.tls import client_context, read_tls_settings

    where = f"listener {endpoint.listener}"
    properties = listener_properties(given, endpoint.listener)
    tls = login = None
    if endpoint.protocol.endswith("SSL"):
        try:
            tls = client_context(read_tls_settings(properties, where))
        except ConfigError as e:
            raise ConfigError(f"{where}: {e}") from e
    if endpoint.protocol.startswith("SASL"):
        mechanism = given["sasl.mechanism.inter.broker.protocol"].strip()
        module = login_module(given, endpoint.listener, mechanism)
        user, password = module.option("username"), module.options.get("password")
        if not user or not password:
            raise ConfigError(
                f"{where}: the login module of {mechanism} has no username and password of this broker's own"
            )
        login = Login(mechanism, user, password)
    return ClientSecurity(endpoint.protocol, tls, login, where)


def login_file_notes(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is to be warned of the login file, if one is used. Raises ConfigError where it cannot be."""
    from kafkatool.core.security.credential_files import read_credential_file

    path = _jaas_file(given)
    return () if path is None else read_credential_file(path).notes


def _jaas_file(given: Mapping[str, str]) -> Path | None:
    from kafkatool.core.security.zookeeper_security import login_file_of

    named = given.get("kt.jaas.config") or login_file_of(os.environ.get("KAFKA_OPTS", ""))
    return Path(named) if named else None
