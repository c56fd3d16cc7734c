"""Real Kafka that nobody unknown may do anything on: ZooKeeper with SASL, from 2.5 on with TLS too, and ACLs on its nodes;
brokers with SASL_SSL and SSL listeners and an authorizer. Its keys are made by ``keytool``, which comes with Java.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.java import find_java
from kafkatool.core.java_properties import parse_properties
from kafkatool.core.operations.verification.replica_reader import layout_from_brokers
from kafkatool.core.security.client_security import read_client_security
from kafkatool.core.security.zookeeper_security import read_zookeeper_security
from tests.access import Access
from tests.compat.real_kafka import RealKafka
from tests.ports import free_port

STORE: Final = "store-word-41"
ADMIN: Final = "admin-word-42"
ALICE: Final = "alice-word-43"
KAFKA: Final = "kafka-word-44"
SECRETS: Final = (STORE, ADMIN, ALICE, KAFKA)
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecuredKafka(RealKafka):
    """``files`` holds jaas.conf, zk-tls.properties, and USER-MECHANISM.properties of admin and alice; admin may do all.

    ``unencrypted``: its brokers have a SASL_PLAINTEXT listener besides.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        brokers: int = 2,
        options: Mapping[str, str] | None = None,
        unencrypted: bool = False,
    ) -> None:
        numbers = tuple(map(int, version.split(".")[:2]))
        super().__init__(version, directory, brokers=brokers, options=options)
        self.files = directory / "security"
        self._is_zookeeper_tls = numbers >= (2, 5)
        self._zookeeper_tls_port = free_port()
        self._ssl_ports = {broker: free_port() for broker in self.ports}
        self._unencrypted_ports = {broker: free_port() for broker in self.ports if unencrypted}
        new = "kafka.security.authorizer.AclAuthorizer"
        self._authorizer = new if numbers >= (2, 4) else "kafka.security.auth.SimpleAclAuthorizer"

    @property
    def connect_tls(self) -> str:
        """Return the address of ZooKeeper's TLS port."""
        return f"127.0.0.1:{self._zookeeper_tls_port}"

    @property
    def bootstrap_ssl(self) -> str:
        """Return the addresses where a certificate is the login."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ssl_ports.values())

    @property
    def jaas(self) -> Path:
        return self.files / "jaas.conf"

    @property
    def java_options(self) -> str:
        """Return KAFKA_OPTS of an operator."""
        return f"-Djava.security.auth.login.config={self.jaas}"

    def _java(self, main: str, args: Sequence[str], *, heap: str) -> list[str]:
        command = super()._java(main, args, heap=heap)
        return [command[0], self.java_options, *command[1:]]

    def _start_zookeeper(self) -> None:
        self.files.mkdir(parents=True)
        self._make_stores()
        self._write_files()
        super()._start_zookeeper()
        for user, word in (("admin", ADMIN), ("alice", ALICE)):
            credentials = f"SCRAM-SHA-256=[password={word}],SCRAM-SHA-512=[password={word}]"
            entity = ("--entity-type", "users", "--entity-name", user)
            asked = ("--zookeeper", self.connect, "--alter", *entity, "--add-config", credentials)
            done = self.tool("kafka.admin.ConfigCommand", *asked)
            if done.returncode:
                raise RuntimeError(f"no SCRAM user: {done.stdout}{done.stderr}")

    def _zookeeper_lines(self) -> str:
        lines = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
        if not self._is_zookeeper_tls:
            return lines
        return lines + (
            f"secureClientPort={self._zookeeper_tls_port}\nsecureClientPortAddress=127.0.0.1\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nssl.clientAuth=none\n"
            f"ssl.keyStore.location={self.files}/broker.p12\nssl.keyStore.password={STORE}\n"
            f"ssl.trustStore.location={self.files}/trust.p12\nssl.trustStore.password={STORE}\n"
        )

    @property
    def access(self) -> Access:
        """Return how its admin gets in, at ZooKeeper as ``kafka``."""
        file = self.files / "admin-plain.properties"
        return Access(
            librdkafka=self.librdkafka("admin", "PLAIN"),
            brokers=read_client_security(_properties(file), str(file)),
            zookeeper=read_zookeeper_security(auth_file=str(self.jaas)),
            environment={"KAFKA_OPTS": self.java_options, "KAFKATOOL_COMMAND_CONFIG": str(file)},
        )

    def librdkafka(self, user: str, mechanism: str, password: str | None = None) -> dict[str, str]:
        """Return what that client needs to log in."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.files / "trust.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or {"admin": ADMIN, "alice": ALICE}[user],
        }

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        secured = self.secured_broker(self.ports[broker], self._ssl_ports[broker])
        if port := self._unencrypted_ports.get(broker):
            secured["listeners"] = f"{secured['listeners']},SASL_PLAINTEXT://127.0.0.1:{port}"
        return {**secured, **self._options}

    def secured_broker(self, port: int, ssl_port: int) -> dict[str, object]:
        """Return the properties of a broker with these listeners, theirs or ours."""
        zookeeper = {}
        if self._is_zookeeper_tls:
            zookeeper = {**_properties(self.files / "zk-tls.properties"), "zookeeper.connect": self.connect_tls}
        return {
            **_stores(self.files, "broker"),
            **zookeeper,
            "listeners": f"SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{ssl_port}",
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.client.auth": "required",
            "authorizer.class.name": self._authorizer,
            "super.users": "User:admin;User:CN=admin",
            "zookeeper.set.acl": "true",
        }

    def _known_to(self, broker: int) -> set[int]:
        security = read_client_security(_properties(self.files / "admin-plain.properties"), "admin")
        try:
            with Connections(BrokerAccess(security)) as connections:
                address = Address("127.0.0.1", self.ports[broker])
                layout = layout_from_brokers([address], lambda _: (), connections)
        except BrokerUnreachableError:
            return set()
        return set(layout.addresses)

    def _make_stores(self) -> None:
        for name in ("broker", "admin"):
            self._keytool(
                *("-genkeypair", "-alias", name, "-keyalg", "RSA", "-dname", f"CN={name}", "-validity", "30"),
                *("-ext", "san=dns:localhost,ip:127.0.0.1", "-keystore", f"{name}.p12", "-storetype", "PKCS12"),
            )
            self._keytool("-exportcert", "-rfc", "-alias", name, "-keystore", f"{name}.p12", "-file", f"{name}.pem")
            self._keytool(
                *("-importcert", "-noprompt", "-alias", name, "-file", f"{name}.pem", "-keystore", "trust.p12"),
                *("-storetype", "PKCS12"),
            )
        trusted = "".join((self.files / f"{name}.pem").read_text() for name in ("broker", "admin"))
        (self.files / "trust.pem").write_text(trusted)
        for store in self.files.glob("*.p12"):
            store.chmod(0o600)

    def _keytool(self, *args: str) -> None:
        program = find_java().executable.with_name("keytool")
        command = [str(program) if program.exists() else "keytool", *args, "-storepass", STORE]
        subprocess.run(command, cwd=self.files, check=True, capture_output=True, timeout=180)

    def _write_files(self) -> None:
        plain, scram = (f"org.apache.kafka.common.security.{m}LoginModule" for m in ("plain.Plain", "scram.Scram"))
        digest = "org.apache.zookeeper.server.auth.DigestLoginModule"
        self._write(
            "jaas.conf",
            f'Server {{ {digest} required user_kafka="{KAFKA}" user_ops="{KAFKA}"; }};\n'
            f'Client {{ {digest} required username="kafka" password="{KAFKA}"; }};\n'
            f'KafkaServer {{ {plain} required username="admin" password="{ADMIN}" user_admin="{ADMIN}" '
            f'user_alice="{ALICE}";\n {scram} required username="admin" password="{ADMIN}"; }};\n',
        )
        trust = {k: v for k, v in _stores(self.files, "broker").items() if "truststore" in k}
        for user, word in (("admin", ADMIN), ("alice", ALICE)):
            for mechanism in MECHANISMS:
                module = plain if mechanism == "PLAIN" else scram
                login = f'{module} required username="{user}" password="{word}";'
                self._write_properties(
                    f"{user}-{mechanism.lower()}.properties",
                    {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": login, **trust},
                )
        self._write_properties("admin-ssl.properties", {"security.protocol": "SSL", **_stores(self.files, "admin")})
        zookeeper = {f"zookeeper.{k}": v for k, v in trust.items()}
        socket = "org.apache.zookeeper.ClientCnxnSocketNetty"
        enabled = {"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": socket}
        self._write_properties("zk-tls.properties", {**enabled, **zookeeper})

    def _write_properties(self, name: str, properties: Mapping[str, object]) -> None:
        self._write(name, "".join(f"{k}={v}\n" for k, v in properties.items()))

    def _write(self, name: str, text: str) -> None:
        file = self.files / name
        file.touch(0o600)
        file.write_text(text)


def _properties(file: Path) -> dict[str, str]:
    return parse_properties(file.read_text())


def _stores(files: Path, owner: str) -> dict[str, object]:
    return {
        "ssl.truststore.location": files / "trust.p12",
        "ssl.truststore.password": STORE,
        "ssl.truststore.type": "PKCS12",
        "ssl.keystore.location": files / f"{owner}.p12",
        "ssl.keystore.password": STORE,
        "ssl.key.password": STORE,
        "ssl.keystore.type": "PKCS12",
    }
