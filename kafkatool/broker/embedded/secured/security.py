"""A secured cluster of this machine: its authority, certificates, users, and what brokers and clients are told of them.

All of it lies below ``<dir>/security``, under the names that are used for real secured clusters; made at the first start
and kept with the directory (SEC-104 to 109), which is for its owner alone, as brokers' data and logs lie in it, too.
"""

import re
import secrets
import ssl
import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkatool.broker.embedded.slips import meant
from kafkatool.core.errors import RefusedError
from kafkatool.core.security.credential_files import make_private_directory, write_credential_file

if TYPE_CHECKING:
    from kafkatool.broker.embedded.secured.certificates import Certificate, Validity
    from kafkatool.core.security.client_security import ClientSecurity
    from kafkatool.core.security.scram import Credential
    from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity

PLAINTEXT: Final = "plaintext"
VALUES: Final = (PLAINTEXT, "ssl", "sasl_plaintext", "sasl_ssl")
ADMIN: Final = "admin"
USERS: Final = (ADMIN, "alice")
ZOOKEEPER_USER: Final = "kafka"
"""Whom brokers are to ZooKeeper; all nodes are his."""
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM)
CERTIFICATE: Final = "SSL"
"""The "mechanism" of who proves himself by a certificate."""
CLIENTS: Final = ("confluent", "aiokafka", "kafka-python", "java")

_PASSWORD_CHARACTERS: Final = 24
_ZOOKEEPER_TLS: Final = "zk-tls.properties"
_STORE: Final = "store"  # the "user" whose password the key and truststores have
_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
_MODULES: Final = "org.apache.kafka.common.security"
_UNWRITABLE: Final = re.compile(r'["\\\x00-\x1f\x7f]|^$')  # in login files and properties these mean something
_DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"


def open_client(kind: str, bootstrap: str, directory: Path) -> Any:
    """Return the configuration of a client of a cluster that is open: a test that asks for it runs on either."""
    _check_kind(kind)
    if kind == "java":
        path = directory / "client.properties"
        write_credential_file(path, f"bootstrap.servers={bootstrap}\nsecurity.protocol=PLAINTEXT\n".encode())
        return path
    return {"bootstrap.servers" if kind == "confluent" else "bootstrap_servers": bootstrap}


def _check_kind(kind: str) -> None:
    if kind not in CLIENTS:
        raise RefusedError(f"no client {kind!r}: there are {', '.join(CLIENTS)}")


class ClusterSecurity:
    """The security of one cluster directory, for a protocol."""

    def __init__(self, directory: Path, security: str, passwords: Mapping[str, str] | None = None) -> None:
        if security not in VALUES or security == PLAINTEXT:
            raise RefusedError(f"security={security!r}: there are {', '.join(VALUES)}{meant(security, VALUES)}")
        self.directory = directory / "security"
        self.protocol = security.upper()
        self._given = dict(passwords or {})
        known = (*USERS, ZOOKEEPER_USER) if self.has_login else (ZOOKEEPER_USER,)
        for user in self._given:
            if user not in known:
                there = f"there are {', '.join(known)}" if self.has_login else "they are certificates"
                raise RefusedError(
                    f"passwords: no user {user} in a cluster with security={security!r}, {there}{meant(user, known)}"
                    + f"; cluster.add_user({user!r}, password) makes one" * self.has_login
                )

    @property
    def has_login(self) -> bool:
        """Tell whether users log in by name and password."""
        return self.protocol.startswith("SASL")

    @property
    def has_certificates(self) -> bool:
        """Tell whether it has a listener for clients with a certificate."""
        return self.protocol.endswith("SSL")

    def prepare(self) -> None:
        """Make what is not there yet, in a cluster's directory that is for its owner alone (SEC-45)."""
        make_private_directory(self.directory.parent)  # before any broker has written a record
        make_private_directory(self.directory)
        for user in (*USERS, ZOOKEEPER_USER):
            self._keep_password(user)
        if self.has_certificates:
            self._make_certificates()
            self._write_zookeeper_tls()
        self._write_jaas()
        for user in USERS:
            self._write_client_files(user)

    def _make_certificates(self) -> None:
        from kafkatool.broker.embedded.secured.certificates import Authority, broker_names

        store = self._keep_password(_STORE)
        authority = Authority.open(self.directory)
        broker = authority.certificate("broker", "CN=broker", store, names=broker_names())
        authority.certificate(ADMIN, f"CN={ADMIN}", store)
        authority.write_truststore(self.directory / "trust.p12", store)
        # A store of PEM needs no password, so that server.properties holds none.
        write_credential_file(
            self.directory / "broker-store.pem", broker.key.read_bytes() + broker.certificate.read_bytes()
        )
        self._write_properties(f"{ADMIN}-ssl", {"security.protocol": "SSL", **self._java_stores(with_key=ADMIN)})

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    @property
    def login_file(self) -> Path:
        """Return the JAAS file of ZooKeeper, of the brokers, and of who goes to ZooKeeper as they do."""
        return self.directory / "jaas.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Return what brokers log in to ZooKeeper by."""
        return {"KAFKA_OPTS": f"-Djava.security.auth.login.config={self.login_file}"}

    def zookeeper_settings(self, tls_port: int | None) -> dict[str, str]:
        """Return what zoo.cfg holds of it; passwords are in files of their own."""
        settings = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
        if tls_port is None:
            return settings
        return settings | {
            "secureClientPort": str(tls_port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth": "none",
            "ssl.keyStore.location": str(self.directory / "broker.p12"),
            "ssl.keyStore.passwordPath": str(self.password_file(_STORE)),
            "ssl.trustStore.location": str(self.directory / "trust.p12"),
            "ssl.trustStore.passwordPath": str(self.password_file(_STORE)),
        }

    def to_zookeeper(self) -> "ZooKeeperSecurity":
        """Return how this library itself goes to ZooKeeper."""
        from kafkatool.core.security.zookeeper_security import read_zookeeper_security

        return read_zookeeper_security(auth_file=str(self.login_file))

    def _write_zookeeper_tls(self) -> None:
        trust = {f"zookeeper.{key}": value for key, value in self._java_stores().items()}
        socket = "org.apache.zookeeper.ClientCnxnSocketNetty"
        enabled = {"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": socket}
        self._write_properties(_ZOOKEEPER_TLS.removesuffix(".properties"), enabled | trust)

    # --- passwords --------------------------------------------------------------------------------------------------

    def password_file(self, user: str) -> Path:
        """Return where a user's password is."""
        return self.directory / f"{user}.password"

    def password(self, user: str) -> str:
        """Return a user's password. Raises RefusedError for one who has none."""
        try:
            return self.password_file(user).read_text()
        except FileNotFoundError:
            raise RefusedError(f"no user {user} in this cluster: add_user({user!r}) makes one") from None

    def _keep_password(self, user: str, password: str | None = None) -> str:
        file = self.password_file(user)
        if password is None:
            password = self._given.get(user)
        if password is not None and _UNWRITABLE.search(password):
            raise RefusedError(f"the password of {user!r} is empty, or has a quote, a backslash or a control character")
        if password is None and file.exists():
            return file.read_text()
        if password is None:
            characters = string.ascii_letters + string.digits
            password = "".join(secrets.choice(characters) for _ in range(_PASSWORD_CHARACTERS))
        write_credential_file(file, password.encode())
        return password

    # --- what brokers are told ----------------------------------------------------------------------------------------

    def broker_properties(self, host: str, port: int, certificate_port: int | None) -> dict[str, str]:
        """Return what a broker's server.properties holds of it; no secret is among it."""
        listeners = [f"{self.protocol}://{host}:{port}"]
        if self.protocol == "SASL_SSL" and certificate_port:
            listeners.append(f"SSL://{host}:{certificate_port}")
        properties = {
            "listeners": ",".join(listeners),
            "security.inter.broker.protocol": self.protocol,
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:CN={ADMIN}" + ";User:CN=broker" * (self.protocol == "SSL"),
            "kt.jaas.config": str(self.login_file),
            "zookeeper.set.acl": "true",
        }
        if self.has_login:
            properties["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            properties["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        if self.has_certificates:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.directory / "broker-store.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.directory / "ca.pem"),
                "listener.name.ssl.ssl.client.auth": "required",
            }
        return properties

    def _write_jaas(self) -> None:
        users = "".join(f' user_{user}="{self.password(user)}"' for user in USERS)
        login = f'username="{ADMIN}" password="{self.password(ADMIN)}"'
        zookeeper = self.password(ZOOKEEPER_USER)
        text = (
            "KafkaServer {\n"
            f"    {_MODULES}.plain.PlainLoginModule required {login}{users};\n"
            f"    {_MODULES}.scram.ScramLoginModule required {login};\n"
            "};\n"
            f'Server {{\n    {_DIGEST} required user_{ZOOKEEPER_USER}="{zookeeper}";\n}};\n'
            f'Client {{\n    {_DIGEST} required username="{ZOOKEEPER_USER}" password="{zookeeper}";\n}};\n'
        )
        write_credential_file(self.login_file, text.encode())

    def credentials(self, user: str) -> "dict[str, Credential]":
        """Make the user's credentials by mechanism, of his password and new salts."""
        from kafkatool.core.operations.users import make_credential

        return {mechanism: make_credential(mechanism, self.password(user).encode()) for mechanism in SCRAM}

    def add_user(self, user: str, password: str | None) -> None:
        """Give a user a password, and client files for the mechanisms that know users made while brokers run."""
        if _UNWRITABLE.search(user) or "/" in user or user in (ZOOKEEPER_USER, _STORE):
            raise RefusedError(f"no user of a cluster can be called {user!r}")
        self._keep_password(user, password)
        self._write_client_files(user, SCRAM)

    def certificate(
        self, subject: str, *, validity: "Validity", authority: str | None, names: tuple[str, ...]
    ) -> "Certificate":
        """Make a certificate for a client, or a bad one; ``authority``: another than the cluster's."""
        from kafkatool.broker.embedded.secured.certificates import Authority

        if not self.has_certificates:
            raise RefusedError(f"a cluster with security={self.protocol.lower()!r} takes no certificates")
        issuer = Authority.open(self.directory, authority or "ca")
        name = (
            subject.partition("=")[2].partition(",")[0]
            + {"expired": "-expired", "not yet": "-not-yet", "now": ""}[validity]
        )
        name += f"-{authority}" if authority else ""
        return issuer.certificate(name, subject, self._keep_password(_STORE), names=names, validity=validity)

    # --- what clients are told ----------------------------------------------------------------------------------------

    def as_admin(self) -> "ClientSecurity":
        """Return how this library itself asks the brokers."""
        return self.as_user(ADMIN, "PLAIN" if self.has_login else CERTIFICATE)

    def as_user(self, user: str, mechanism: str) -> "ClientSecurity":
        """Return how that user gets in."""
        from kafkatool.core.java_properties import load_properties
        from kafkatool.core.security.client_security import read_client_security

        path = self.properties_file(user, mechanism)
        return read_client_security(load_properties(path), str(path))

    def properties_file(self, user: str, mechanism: str) -> Path:
        """Return a Java client's properties. Raises RefusedError where there is no such user or mechanism here."""
        path = self.directory / f"{user}-{mechanism.lower()}.properties"
        if not path.exists():
            raise RefusedError(
                f"no user {user} with {mechanism} in this cluster; there are "
                + ", ".join(sorted(p.name.removesuffix(".properties") for p in self._client_files()))
            )
        return path

    def client(self, kind: str, user: str, mechanism: str, bootstrap: str) -> Any:
        """Return the configuration of that client: a dict, and for Java the path of a properties file."""
        _check_kind(kind)
        path = self.properties_file(user, mechanism)
        if kind == "java":
            return path
        if kind == "confluent":
            return {"bootstrap.servers": bootstrap, **self._librdkafka(user, mechanism)}
        found: dict[str, Any] = {"bootstrap_servers": bootstrap, "security_protocol": self._protocol(mechanism)}
        if mechanism != CERTIFICATE:
            found |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": self.password(user),
            }
        if self.has_certificates:
            context = ssl.create_default_context(cafile=self.directory / "ca.pem")
            if mechanism == CERTIFICATE:
                context.load_cert_chain(self.directory / f"{user}.pem", self.directory / f"{user}.key")
            found["ssl_context"] = context
        return found

    def status(self, bootstrap_certificates: str | None, zookeeper_tls: str | None) -> dict[str, Any]:
        """Return what ``kt cluster status`` tells of it: files, no secret."""
        has = self.has_certificates
        return {
            "protocol": self.protocol,
            "folder": str(self.directory),
            "ca": str(self.directory / "ca.pem") if has else None,
            "client_properties": sorted(map(str, self._client_files())),
            "password_files": {u.stem: str(u) for u in sorted(self.directory.glob("*.password")) if u.stem != _STORE},
            "bootstrap_ssl": bootstrap_certificates,
            "client_certificate": {
                "certificate": str(self.directory / f"{ADMIN}.pem"),
                "key": str(self.directory / f"{ADMIN}.key"),
            }
            if has
            else None,
            "jaas": str(self.login_file),
            "zookeeper_sasl": {"mechanism": "DIGEST-MD5", "username": ZOOKEEPER_USER},
            "zookeeper_tls": zookeeper_tls,
            "zk_tls_properties": str(self.directory / _ZOOKEEPER_TLS) if has else None,
        }

    def _client_files(self) -> list[Path]:
        found = self.directory.glob("*-*.properties")
        return [p for p in found if not p.name.endswith(".librdkafka.properties") and p.name != _ZOOKEEPER_TLS]

    def _protocol(self, mechanism: str) -> str:
        return CERTIFICATE if mechanism == CERTIFICATE else self.protocol

    def _write_client_files(self, user: str, mechanisms: tuple[str, ...] = MECHANISMS) -> None:
        if not self.has_login:
            mechanisms = ()
        for mechanism in mechanisms:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'{_MODULES}.{module} required username="{user}" password="{self.password(user)}";'
            properties = {"security.protocol": self.protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": login}
            name = f"{user}-{mechanism.lower()}"
            self._write_properties(name, properties | (self._java_stores() if self.has_certificates else {}))
            self._write_properties(f"{name}.librdkafka", self._librdkafka(user, mechanism))
        if user == ADMIN and self.has_certificates:
            self._write_properties(f"{ADMIN}-ssl.librdkafka", self._librdkafka(ADMIN, CERTIFICATE))

    def _java_stores(self, with_key: str | None = None) -> dict[str, str]:
        store = self.password(_STORE)
        found = {"ssl.truststore.location": str(self.directory / "trust.p12")}
        found |= {"ssl.truststore.password": store, "ssl.truststore.type": "PKCS12"}
        if with_key:
            found |= {"ssl.keystore.location": str(self.directory / f"{with_key}.p12")}
            found |= {"ssl.keystore.password": store, "ssl.key.password": store, "ssl.keystore.type": "PKCS12"}
        return found

    def _librdkafka(self, user: str, mechanism: str) -> dict[str, str]:
        found = {"security.protocol": self._protocol(mechanism)}
        if self.has_certificates:
            found["ssl.ca.location"] = str(self.directory / "ca.pem")
        if mechanism == CERTIFICATE:
            found["ssl.certificate.location"] = str(self.directory / f"{user}.pem")
            found["ssl.key.location"] = str(self.directory / f"{user}.key")
        else:
            found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": self.password(user)}
        return found

    def _write_properties(self, name: str, properties: Mapping[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        write_credential_file(self.directory / f"{name}.properties", text.encode())
