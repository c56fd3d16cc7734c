"""Makes the class-data archive of ZooKeeper's JVM, at the lowest priority: ``python -m …zookeeper_archive_maker``.

Its classes are those of a server that a broker's session would use: one is run for a moment, with data of its own.
"""

import os
import subprocess
from pathlib import Path

from kafkatool.broker.embedded.ports import free_ports
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess, archive_path, java_command
from kafkatool.core import class_data
from kafkatool.core.java import Java, find_java
from kafkatool.core.zookeeper.session import ANY_VERSION, Create, Delete, SetData, ZooKeeper

_UNTIL_OUR_END = ("sh", "-c", '"$@" & read line; kill $!; wait', "sh")
"""Runs a command until our end of its input is closed: a maker that is killed leaves no server behind."""

_READY_MS = 600_000  # at the lowest priority of a busy machine
_END_S = 60


def make() -> None:
    """Make the archive, if nobody else is at it. KafkatoolError, OSError, SubprocessError."""
    java = find_java()

    def list_classes(directory: Path, classes: Path) -> None:
        _list_classes(java, directory, classes)

    class_data.make(archive_path(java), list_classes, java_command(java))


def _list_classes(java: Java, directory: Path, classes: Path) -> None:
    (port,) = free_ports(1)
    server = ZooKeeperProcess(directory / "zookeeper", port)
    command = [*_UNTIL_OUR_END, *server.command(java, [f"-XX:DumpLoadedClassList={classes}"])]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        server.child = running
        server.wait_ready(_READY_MS)
        with ZooKeeper(server.connect) as session:
            session.children("/", lambda event: None)
            session.create("/made", ephemeral=True)
            session.get_many(["/made", "/absent"], lambda event: None)
            session.commit([Create("/other", b""), SetData("/other", b"-", 0), Delete("/made", ANY_VERSION)])
            session.delete("/other")
        running.communicate(timeout=_END_S)


if __name__ == "__main__":
    os.nice(19)
    make()
