"""The login and TLS of a session with ZooKeeper, and where they are told (SEC-1, SEC-3 to SEC-5, SEC-11).

A flag, an environment variable or a setting names files; else KAFKA_OPTS may, as for Kafka's own tools. What a file named
by kt's own means does not have is an error; one in KAFKA_OPTS that is missing is a note, as it may be meant for others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkatool.core.errors import ConfigError, ZooKeeperRefusedError

if TYPE_CHECKING:  # every session knows these values; who has no login starts without all else
    import ssl

    from kafkatool.core.security.credential_files import CredentialFile
    from kafkatool.core.security.jaas import LoginModule, Section
    from kafkatool.core.security.kerberos import Tickets
    from kafkatool.core.security.secret import Secret

DIGEST_MD5: Final = "DIGEST-MD5"
GSSAPI: Final = "GSSAPI"
LOGIN_CONFIG: Final = "java.security.auth.login.config"
CLIENT_SECTION: Final = "Client"
_DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_KEYS: Final = {"scheme", "mechanism", "username", "password", "password.file", "keytab", "principal", "service"}
_TLS: Final = "zookeeper.ssl."
AUTHORIZER: Final = "authorizer."
"""Stands before what is meant for ACLs alone."""
_TLS_KEYS: Final = {
    f"{_TLS}{key}"
    for key in (
        *("keystore.location", "keystore.password", "keystore.type", "truststore.location", "truststore.password"),
        *("truststore.type", "protocol", "enabled.protocols", "cipher.suites", "endpoint.identification.algorithm"),
        *("client.enable", "crl.enable", "ocsp.enable"),
    )
} | {"zookeeper.clientCnxnSocket"}
_CAMEL: Final = {
    "zookeeper.client.secure": f"{_TLS}client.enable",
    "zookeeper.ssl.keyStore.location": f"{_TLS}keystore.location",
    "zookeeper.ssl.keyStore.password": f"{_TLS}keystore.password",
    "zookeeper.ssl.keyStore.type": f"{_TLS}keystore.type",
    "zookeeper.ssl.trustStore.location": f"{_TLS}truststore.location",
    "zookeeper.ssl.trustStore.password": f"{_TLS}truststore.password",
    "zookeeper.ssl.trustStore.type": f"{_TLS}truststore.type",
    "zookeeper.ssl.protocol": f"{_TLS}protocol",
    "zookeeper.ssl.enabledProtocols": f"{_TLS}enabled.protocols",
    "zookeeper.ssl.ciphersuites": f"{_TLS}cipher.suites",
    "zookeeper.ssl.crl": f"{_TLS}crl.enable",
    "zookeeper.ssl.ocsp": f"{_TLS}ocsp.enable",
}


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """A login by SASL, or by ZooKeeper's own scheme digest. ``source`` is where it was told.

    With ``tickets`` it is by GSSAPI: the user is a principal with its realm, the password empty.
    """

    scheme: str
    user: str
    password: "Secret"
    source: str
    mechanism: str = DIGEST_MD5
    service: str = "zookeeper"
    tickets: "Tickets | None" = None

    @property
    def zookeeper_id(self) -> str:
        """Return the id that ZooKeeper makes of it; of the scheme digest that is name and hash."""
        if self.scheme != "digest":
            return self.user
        import base64
        import hashlib

        sha1 = hashlib.sha1(f"{self.user}:{self.password.reveal()}".encode(), usedforsecurity=False).digest()
        return f"{self.user}:{base64.b64encode(sha1).decode()}"

    @property
    def described(self) -> str:
        """Name it as in ``SASL DIGEST-MD5 as kafka``."""
        return f"{f'SASL {self.mechanism}' if self.scheme == 'sasl' else self.scheme} as {self.user}"


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """What a session needs beside its address. ``notes`` are to be told as warnings.

    ``subject`` is that of the client certificate, as ZooKeeper writes it; empty without one.
    """

    login: ZooKeeperLogin | None = None
    tls: "ssl.SSLContext | None" = None
    subject: str = ""
    notes: tuple[str, ...] = ()
    tls_source: str = ""

    @property
    def has_identity(self) -> bool:
        """Tell whether the session is more than anybody."""
        return self.login is not None or bool(self.subject)

    @property
    def ids(self) -> frozenset[tuple[str, str]]:
        """Return scheme and id of each identity that ZooKeeper knows the session by (SEC-18, SEC-19)."""
        who = set() if self.login is None else {(self.login.scheme, self.login.zookeeper_id)}
        return frozenset(who | ({("x509", self.subject)} if self.subject else set()))

    @property
    def identity(self) -> str:
        """Say who the session is, as the end of a sentence."""
        who = [] if self.login is None else [f"{self.login.scheme}:{self.login.user}"]
        if self.subject:
            who.append(f"x509:{self.subject}")
        return f"this session is {' and '.join(who)}" if who else "this session has no login"

    @property
    def described(self) -> tuple[str, ...]:
        """Tell in a few words each what is used, and from where; never a secret."""
        found = []
        if self.tls is not None:
            found.append(f"TLS{f' as {self.subject}' if self.subject else ''}, from {self.tls_source}")
        found.append("no login" if self.login is None else f"{self.login.described}, from {self.login.source}")
        return tuple(found)


OPEN: Final = ZooKeeperSecurity()


def read_zookeeper_security(
    *, auth_file: str | None = None, tls_file: str | None = None, java_options: str = "", for_acls: bool = False
) -> ZooKeeperSecurity:
    """Read what the files say, else what ``java_options``, KAFKA_OPTS, name. Raises ConfigError, ZooKeeperRefusedError.

    ``for_acls``: ``authorizer.zookeeper.ssl.*`` of the TLS file go before the same without the first word (KIP-515).
    """
    if auth_file is None and tls_file is None and not java_options:
        return OPEN
    notes: list[str] = []
    system = _system_properties(java_options, notes)
    if auth_file is not None:
        login: ZooKeeperLogin | None = _login_of_file(Path(auth_file), system, notes)
    else:
        login = _login_of_java(system, notes)
    if tls_file is not None:
        file = _read(Path(tls_file), encoding="latin-1")
        notes += file.notes
        properties, source = _properties(file.text), tls_file
        unknown = sorted(key for key in properties if key.removeprefix(AUTHORIZER) not in _TLS_KEYS)
        if unknown:
            notes.append(f"{tls_file}: {', '.join(unknown)}: not known here, ignored")
        if for_acls:
            own = {
                key.removeprefix(AUTHORIZER): value for key, value in properties.items() if key.startswith(AUTHORIZER)
            }
            properties |= own
    else:
        properties = {_CAMEL.get(key, key): value for key, value in system.items() if key.startswith("zookeeper.")}
        if system.get("zookeeper.ssl.hostnameVerification", "true").lower() == "false":
            properties[f"{_TLS}endpoint.identification.algorithm"] = ""
        source = "KAFKA_OPTS"
    return with_tls(ZooKeeperSecurity(login, notes=tuple(notes)), properties, source)


def with_tls(security: ZooKeeperSecurity, properties: Mapping[str, str], source: str) -> ZooKeeperSecurity:
    """Add the TLS that ``zookeeper.ssl.*`` of the properties ask for. Raises ConfigError."""
    enabled = f"{_TLS}client.enable"
    if not properties.get(enabled):
        return security
    from kafkatool.core.security.stores import subject_of
    from kafkatool.core.security.tls import client_context, is_true, read_tls_settings

    if not is_true(properties[enabled], f"{source}: {enabled}"):
        return security
    settings = read_tls_settings(properties, source, prefix=_TLS)
    try:
        context = client_context(settings)
    except ConfigError as e:
        raise ConfigError(f"{source}: {e}") from e
    notes = (*security.notes, *settings.notes)
    subject = "" if settings.key_pair is None else subject_of(settings.key_pair.chain)
    return ZooKeeperSecurity(security.login, context, subject, notes, source)


def read_client_section(path: str, name: str) -> "tuple[str, Section] | None":
    """Return a section of a login file with what it is called; None: the file has none. Raises ConfigError."""
    section = _sections(_read(Path(path)).text, path).get(name)
    return None if section is None else (f"{path}, section {name}", section)


def login_file_of(java_options: str) -> str | None:
    """Return the login file that Java's options name."""
    return _system_properties(java_options, []).get(LOGIN_CONFIG)


# --- files -----------------------------------------------------------------------------------------------------------


def _read(path: Path, *, encoding: str = "utf-8") -> "CredentialFile":
    from kafkatool.core.security.credential_files import read_credential_file

    return read_credential_file(path, encoding=encoding)


def _properties(text: str) -> dict[str, str]:
    from kafkatool.core.java_properties import parse_properties

    return parse_properties(text)


def _sections(text: str, where: str) -> "dict[str, Section]":
    from kafkatool.core.security.jaas import parse_jaas

    return parse_jaas(text, where)


def _system_properties(java_options: str, notes: list[str]) -> dict[str, str]:
    """Return -Dname=value of Java's options; all else there is other tools'."""
    import shlex

    try:
        words = shlex.split(java_options)
    except ValueError as e:
        notes.append(f"KAFKA_OPTS: {str(e).lower()}: nothing of it is used")
        return {}
    pairs = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in pairs}


# --- logins ----------------------------------------------------------------------------------------------------------


def _login_of_file(path: Path, system: Mapping[str, str], notes: list[str]) -> ZooKeeperLogin:
    """Read --zk-auth-file: a login file, or properties."""
    file = _read(path)
    notes += file.notes
    if "{" in "".join(line for line in file.text.splitlines() if not line.lstrip().startswith(("#", "!"))):
        name = system.get("zookeeper.sasl.clientconfig", CLIENT_SECTION)
        section = _sections(file.text, str(path)).get(name)
        if section is None:
            raise ConfigError(f"{path}: no section {name}")
        return _login_of_section(section, f"{path}, section {name}", system, notes)
    return _login_of_properties(_properties(file.text), path, notes)


def _login_of_java(system: Mapping[str, str], notes: list[str]) -> ZooKeeperLogin | None:
    """Read the login file that KAFKA_OPTS names; one that does not fit is a note."""
    path = system.get(LOGIN_CONFIG)
    if path is None:
        return None
    name = system.get("zookeeper.sasl.clientconfig", CLIENT_SECTION)
    if not Path(path).exists():
        notes.append(f"KAFKA_OPTS: no login file {path}: no login to ZooKeeper")
        return None
    file = _read(Path(path))
    section = _sections(file.text, path).get(name)
    if section is None:
        notes.append(f"KAFKA_OPTS: {path} has no section {name}: no login to ZooKeeper")
        return None
    notes += file.notes
    if system.get("zookeeper.sasl.client", "true").lower() == "false":
        raise ConfigError(f"KAFKA_OPTS: zookeeper.sasl.client=false, but {path} has a section {name}")
    return _login_of_section(section, f"KAFKA_OPTS ({path}, section {name})", system, notes)


def _login_of_section(section: "Section", source: str, system: Mapping[str, str], notes: list[str]) -> ZooKeeperLogin:
    if not section:
        raise ConfigError(f"{source}: no login module in it")
    module = section[0]
    if module.name == _DIGEST_MODULE:
        user, password = module.option("username"), module.options.get("password")
        if not user or not password:
            raise ConfigError(f"{source}: {'password' if user else 'username'} is missing")
        return ZooKeeperLogin("sasl", user, password, source)
    if module.name == _KERBEROS_MODULE:
        service = system.get("zookeeper.sasl.client.username", "zookeeper")
        return _login_of_krb5_module(module, source, service, notes)
    raise ConfigError(
        f"{source}: login module {module.name} is not served; there are {_DIGEST_MODULE}, {_KERBEROS_MODULE}"
    )


def _login_of_krb5_module(module: "LoginModule", source: str, service: str, notes: list[str]) -> ZooKeeperLogin:
    """Read the options of Java's module; one that would have it ask for a password is refused."""

    def is_on(option: str) -> bool:
        return (module.option(option) or "").lower() == "true"

    _look_for_gssapi(source)
    keytab = module.option("keyTab") if is_on("useKeyTab") else None
    cache = (module.option("ticketCache") or "") if is_on("useTicketCache") else None
    if keytab is None and cache is None:
        raise ConfigError(f"{source}: it has neither useTicketCache=true nor useKeyTab=true with a keyTab")
    return _kerberos(module.option("principal") or "", keytab, cache, source, service, notes)


def _login_of_properties(given: Mapping[str, str], path: Path, notes: list[str]) -> ZooKeeperLogin:
    if unknown := sorted(given.keys() - _KEYS):
        raise ConfigError(f"{path}: unknown {', '.join(unknown)}; there are {', '.join(sorted(_KEYS))}")
    scheme, mechanism = given.get("scheme", "sasl"), given.get("mechanism", DIGEST_MD5)
    if scheme not in ("sasl", "digest"):
        raise ConfigError(f"{path}: scheme={scheme}: there are sasl, digest")
    if scheme == "sasl" and mechanism == GSSAPI:
        _look_for_gssapi(str(path))
        keytab = given.get("keytab")
        cache = "" if keytab is None else None
        return _kerberos(given.get("principal", ""), keytab, cache, str(path), given.get("service", "zookeeper"), notes)
    if mechanism != DIGEST_MD5:
        raise ConfigError(f"{path}: mechanism={mechanism}: there are {DIGEST_MD5}, {GSSAPI}")
    from kafkatool.core.security.secret import Secret

    password = Secret(given.get("password", ""))
    if "password.file" in given:
        file = _read(Path(given["password.file"]))
        notes += file.notes
        password = Secret(file.text.rstrip("\r\n"))
    if not given.get("username") or not password:
        raise ConfigError(f"{path}: {'password or password.file' if given.get('username') else 'username'} is missing")
    return ZooKeeperLogin(scheme, given["username"], password, str(path))


def _look_for_gssapi(source: str) -> None:
    try:
        import gssapi  # noqa: F401
    except ModuleNotFoundError as e:
        raise ConfigError(f"{source}: GSSAPI needs the extra: pip install 'kafka-kt[kerberos]'") from e
    except ImportError as e:
        raise ConfigError(f"{source}: GSSAPI needs the machine's Kerberos library: {e}") from e


def _kerberos(
    principal: str, keytab: str | None, cache: str | None, source: str, service: str, notes: list[str]
) -> ZooKeeperLogin:
    """Return a login by tickets. Raises ConfigError, ZooKeeperRefusedError where the cache has no ticket."""
    from kafkatool.core.security.kerberos import Tickets, whole_name
    from kafkatool.core.security.secret import Secret

    if keytab is not None:
        keytab = keytab.removeprefix("FILE:")
        if not principal:
            raise ConfigError(f"{source}: principal is missing: {keytab} may have keys of several")
        notes += _read(Path(keytab), encoding="latin-1").notes
    tickets = Tickets(keytab, cache)
    try:
        user = whole_name(principal) if principal else tickets.owner()
    except ZooKeeperRefusedError as e:
        raise ZooKeeperRefusedError(f"no login to ZooKeeper by {source}: {e}") from e
    return ZooKeeperLogin("sasl", user, Secret(""), source, GSSAPI, service, tickets)
