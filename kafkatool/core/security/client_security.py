"""How a connection to a broker is secured: protocol, TLS and login, from a Kafka client's properties (SEC-33, SEC-34).

Java's names are read as they are; what concerns other parts of a client is ignored, as the files are shared with real
clients. What would change who logs in, and is not served, is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkatool.core.errors import ConfigError

if TYPE_CHECKING:  # who has neither login nor TLS starts without
    import ssl

    from kafkatool.core.security.jaas import LoginModule, Section
    from kafkatool.core.security.secret import Secret

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN: Final = "PLAIN"
_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_NOT_YET: Final = ("GSSAPI", "OAUTHBEARER")
_REFUSED: Final = (".callback.handler.class", "ssl.engine.factory.class", "sasl.login.class")


@dataclass(frozen=True, slots=True)
class Login:
    """A login by SASL: PLAIN, or one of SCRAM's mechanisms."""

    mechanism: str
    user: str
    password: "Secret"


@dataclass(slots=True)
class ClientSecurity:
    """What a connection needs beside host and port. ``source`` is where it was told, for who has to mend it.

    Nothing of it changes but ``tls``, when a broker reads its stores again: connections made from then on have it.
    """

    protocol: str = "PLAINTEXT"
    tls: "ssl.SSLContext | None" = None
    login: Login | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    warn: Callable[[str], None] | None = field(default=None, repr=False)
    """Whom to tell what shows with a connection alone; None: nobody."""

    @property
    def identity(self) -> str:
        """Tell in a few words who it makes one, as far as this side knows."""
        if self.login is not None:
            return f"{self.principal} ({self.protocol}, {self.login.mechanism})"
        return f"{self.principal} ({self.protocol})" if self.tls else self.principal

    @property
    def principal(self) -> str:
        """Return who brokers take one for; of a certificate this side knows no more than that there may be one."""
        if self.login is not None:
            return f"User:{self.login.user}"
        return "the certificate's subject, or User:ANONYMOUS" if self.tls else "User:ANONYMOUS"


def read_client_security(
    properties: Mapping[str, str], source: str, *, section: "tuple[str, Section] | None" = None
) -> ClientSecurity:
    """Read a client's properties; ``source`` names them in errors. Raises ConfigError.

    ``section`` is ``KafkaClient`` of a login file with its name, for who has no ``sasl.jaas.config``.
    """
    for key in properties:
        if key.endswith(_REFUSED) and properties[key]:
            raise ConfigError(f"{source}: {key} is not served, and without it somebody else would log in")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{source}: security.protocol={protocol}: there are {', '.join(PROTOCOLS)}")
    tls, notes = None, list[str]()
    if protocol.endswith("SSL"):
        from kafkatool.core.security.tls import client_context, read_tls_settings

        settings = read_tls_settings(properties, source)
        try:
            tls = client_context(settings)
        except ConfigError as e:
            raise ConfigError(f"{source}: {e}") from e
        notes += settings.notes
    login = _login(properties, source, section) if protocol.startswith("SASL") else None
    return ClientSecurity(protocol, tls, login, source, tuple(notes))


def _login(properties: Mapping[str, str], source: str, section: "tuple[str, Section] | None") -> Login:
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism in _NOT_YET:
        raise ConfigError(
            f"{source}: sasl.mechanism={mechanism}{'' if 'sasl.mechanism' in properties else ' (the default)'}: not yet; "
            f"there are {', '.join(_MODULES)}"
        )
    if mechanism not in _MODULES:
        raise ConfigError(f"{source}: sasl.mechanism={mechanism}: there are {', '.join(_MODULES)}")
    module, named = _module(properties, source, mechanism, section)
    user, password = module.option("username"), module.options.get("password")
    if not user or not password:
        raise ConfigError(f"{named}: {'password' if user else 'username'} is missing")
    return Login(mechanism, user, password)


def _module(
    properties: Mapping[str, str], source: str, mechanism: str, section: "tuple[str, Section] | None"
) -> "tuple[LoginModule, str]":
    """Return the login module of the mechanism, and what it is called in errors."""
    from kafkatool.core.security.jaas import parse_module

    wanted = _MODULES[mechanism]
    text = properties.get("sasl.jaas.config")
    if text is None and section is None:
        raise ConfigError(f"{source}: sasl.jaas.config is missing, and no login file has a section KafkaClient")
    if text is not None:
        named, modules = f"{source}: sasl.jaas.config", [parse_module(text, f"{source}: sasl.jaas.config")]
    else:
        assert section is not None
        named, modules = section[0], list(section[1])
    found = next((module for module in modules if module.short_name == wanted), None)
    if found is None:
        there = ", ".join(module.short_name for module in modules) or "none"
        raise ConfigError(f"{named}: {mechanism} needs {wanted}, there is {there}")
    return found, named
