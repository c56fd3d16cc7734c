"""Who acts on a real cluster by request: kt, or the tools of the cluster's own version; and kt through ZooKeeper."""

import os
import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.compat.admin_actors import main_class
from tests.compat.java_tools import JavaTools, Said

TIMEOUT_S: Final = 240


class Actor(ABC):
    """The same flags for all; each says how a command is run."""

    name: str
    by_request = True

    @abstractmethod
    def topics(self, action: str, *flags: str) -> Said: ...

    @abstractmethod
    def configure(self, topic: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said: ...

    @abstractmethod
    def reassign(self, *flags: str) -> Said: ...

    @abstractmethod
    def elect(self, *flags: str) -> Said:
        """Elect the preferred leaders."""


class Kt(Actor):
    """``kt``, each command a process. ``flags``: how it gets in."""

    name = "kt"

    def __init__(self, bootstrap: str, *flags: str) -> None:
        self._where: Sequence[str] = ("--bootstrap-server", bootstrap, *flags)
        self._environment: Mapping[str, str] = os.environ

    def topics(self, action: str, *flags: str) -> Said:
        return self._run("topics", action, *flags)

    def configure(self, topic: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        changes = [word for key, value in sets.items() for word in ("--config", f"{key}={value}")]
        changes += [word for key in deletes for word in ("--delete-config", key)]
        return self.topics("alter", "--topic", topic, *changes)

    def reassign(self, *flags: str) -> Said:
        return self._run("reassign", *flags)

    def elect(self, *flags: str) -> Said:
        return self._run("elect", *flags)

    def _run(self, *arguments: str) -> Said:
        command = [sys.executable, "-m", "kafkatool", *arguments, *self._where]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=self._environment,
        )
        return Said(done.returncode, done.stdout + done.stderr)


class KtByZooKeeper(Kt):
    """``kt`` on the nodes that brokers of 3.x with ZooKeeper still follow."""

    name = "kt by ZooKeeper"
    by_request = False

    def __init__(self, connect: str, *flags: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._where = ("--zookeeper", connect, *flags)
        self._environment = {**os.environ, **environment}


class Tools(Actor):
    """The version's own command-line tools. ``login``: a file of client properties, if they need one."""

    def __init__(self, java: JavaTools, bootstrap: str, login: Path | None = None) -> None:
        self.name = f"tools of {java.version}"
        self._java = java
        self._where = ("--bootstrap-server", bootstrap)
        self._login = login

    def topics(self, action: str, *flags: str) -> Said:
        return self._run("topics", f"--{action}", *flags)

    def configure(self, topic: str, sets: Mapping[str, str], deletes: Sequence[str] = ()) -> Said:
        changes = ["--add-config", ",".join(f"{k}=[{v}]" for k, v in sets.items())] if sets else []
        changes += ["--delete-config", ",".join(deletes)] if deletes else []
        entity = ("--entity-type", "topics", "--entity-name", topic)
        return self._run("configs", "--alter", *entity, *changes)

    def reassign(self, *flags: str) -> Said:
        return self._run("reassign", *flags)

    def elect(self, *flags: str) -> Said:
        return self._run("elect", "--election-type", "preferred", *flags)

    def _run(self, tool: str, *arguments: str) -> Said:
        flag = "--admin.config" if tool == "elect" else "--command-config"
        login = (flag, str(self._login)) if self._login else ()
        return self._java(main_class(tool, self._java.version), *self._where, *login, *arguments)


def described(text: str, prefix: str) -> list[str]:
    """Return the lines of a description, sorted, without ids and without ``prefix``; all in one layout.

    Kafka prints configs in no order, and kt with ZooKeeper in the layout of before 2.0.
    """
    lines = [re.sub(r"\tTopicId: \S+|\tElr: .*", "", line).replace(prefix, "") for line in text.splitlines()]
    return sorted(_in_one_layout(line) for line in lines if "Topic:" in line)


def _in_one_layout(line: str) -> str:
    spaced = re.sub(r"(Topic|PartitionCount|ReplicationFactor|Configs):\s*", r"\1: ", line)
    before, configs, after = spaced.partition("Configs: ")
    return re.sub(r"\s+", " ", before + configs + ",".join(sorted(after.split(",")))).strip()
