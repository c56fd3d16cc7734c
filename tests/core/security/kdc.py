"""A throw-away Kerberos realm: Apache Kerby's KDC on loopback, from the jars of Maven Central."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest

from kafkatool.broker.embedded import processes
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import Java, find_java
from tests.maven import dependency, fetched
from tests.waiting import eventually

REALM: Final = "EXAMPLE.COM"
_VERSION: Final = "3.4.1"  # of Hadoop, whose small program around Kerby takes principals and writes their keytab
_MAIN: Final = "org.apache.hadoop.minikdc.MiniKdc"
_DEADLINE_S: Final = 120
_SETTINGS: Final = {
    "org.name": "EXAMPLE",
    "org.domain": "COM",
    "kdc.bind.address": "localhost",
    "kdc.port": "0",
    "transport": "TCP",
    "instance": "DefaultKrbServer",
    "max.ticket.lifetime": "86400000",
    "max.renewable.lifetime": "604800000",
    "debug": "false",
}


def _java() -> Java:
    """Return a Java that knows SASL GSSAPI; skip where there is none."""
    try:
        java = find_java()
    except KafkatoolError as e:
        pytest.skip(f"a KDC and a ZooKeeper that knows Kerberos need a Java: {e}")
    listed = subprocess.run(
        [java.executable, "--list-modules"], capture_output=True, text=True, timeout=300, check=False
    )
    if "jdk.security.jgss" not in listed.stdout:
        pytest.skip(f"{java.executable} has no SASL GSSAPI (its module jdk.security.jgss)")
    return java


def _libraries() -> Path:
    """Return the directory of the KDC's jars, fetched on first use; skip where that is not possible."""
    root = os.environ.get("KDC_HOME")
    home = (Path(root) if root else Path.home() / ".cache" / "kafkatool-compat") / f"minikdc-{_VERSION}"
    if not (home / "ok").exists() and shutil.which("mvn") is None:
        pytest.skip("a KDC needs Maven (mvn) to fetch its jars, or KDC_HOME to have them")
    return fetched(home, [dependency("org.apache.hadoop", "hadoop-minikdc", _VERSION)])


class Kdc:
    """A KDC with these principals, whose keys are in ``keytab``. A context manager: it ends with it."""

    def __init__(self, directory: Path, *principals: str) -> None:
        self._directory = directory
        self._principals = principals
        self._java, self._libraries = _java(), _libraries()
        self._child: subprocess.Popen[bytes] | None = None
        self.keytab = directory / "all.keytab"
        self.port = 0

    def __enter__(self) -> "Kdc":
        self._directory.mkdir(mode=0o700)
        settings, output = self._directory / "kdc.properties", self._directory / "kdc.out"
        settings.write_text("".join(f"{name}={value}\n" for name, value in _SETTINGS.items()))
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m", "-cp", f"{self._libraries}/*")
        command = [str(self._java.executable), *options, _MAIN, self._directory, settings, self.keytab]
        self._child = child = processes.spawn([*map(str, command), *self._principals], output)
        try:
            eventually(
                lambda: "Do <CTRL-C>" in output.read_text() or child.poll() is not None, "the KDC to serve", _DEADLINE_S
            )
            assert child.poll() is None, output.read_text()
            told = (self._directory / "krb5.conf").read_text().split()
            self.port = int(told[told.index("kdc_tcp_port") + 2])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.keytab.chmod(0o600)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def write_config(file: Path, port: int, **defaults: str) -> Path:
    """Write a krb5.conf for the KDC of a port; nothing in it asks a name server."""
    own = {
        "default_realm": REALM,
        "udp_preference_limit": "1",
        "dns_canonicalize_hostname": "false",
        "dns_lookup_kdc": "false",
        "dns_lookup_realm": "false",
        **defaults,
    }
    lines = "".join(f"{name} = {value}\n" for name, value in own.items())
    file.write_text(f"[libdefaults]\n{lines}[realms]\n{REALM} = {{\nkdc = localhost:{port}\n}}\n")
    return file
