"""Real Kafka 3.9.1 on its way from ZooKeeper to KRaft: brokers of each kind, and a controller that migrates (KIP-866)."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ClusterIdZnode
from tests.compat.real_kafka import BROKER, RealKafka
from tests.ports import free_port

VERSION: Final = "3.9.1"
CONTROLLER: Final = 3000


class MigratingKafka(RealKafka):
    """Brokers begin as ZooKeeper's own; each is restarted in another ``kind``: zookeeper, migrating or kraft.

    ``options`` are those of all brokers, ``heap`` is each one's.
    """

    def __init__(
        self, directory: Path, *, brokers: int = 2, options: Mapping[str, str] | None = None, heap: str = "384m"
    ) -> None:
        super().__init__(VERSION, directory, brokers=brokers, options=options)
        self._heap = heap
        self._kinds = dict.fromkeys(self.ports, "zookeeper")
        self._own: dict[int, Mapping[str, object]] = {}
        self._releases: dict[int, str] = {}
        self._controller_port = free_port()

    @property
    def controller(self) -> str:
        """Return the controller's address, whether it runs or not."""
        return f"127.0.0.1:{self._controller_port}"

    def restart(
        self, broker: int, kind: str, options: Mapping[str, object] | None = None, *, release: str = VERSION
    ) -> None:
        """Stop the broker and start it in that kind."""
        self.stop_broker(broker)
        self.start_as(broker, kind, options, release=release)

    def start_as(
        self, broker: int, kind: str, options: Mapping[str, object] | None = None, *, release: str = VERSION
    ) -> None:
        """Start the broker, which is stopped or new, in that kind, with those options until it is started again.

        An option that is None is one of those it would have, and has not.
        """
        self.ports.setdefault(broker, free_port())
        self._kinds[broker], self._own[broker], self._releases[broker] = kind, options or {}, release
        self._spawn_broker(broker)
        self._wait_port(f"broker-{broker}", self.ports[broker])

    def start_controller(self, *, migrating: bool = True, metadata_version: str | None = None) -> None:
        """Start the controller; ``migrating`` False: the migration is finalized. ``metadata_version`` of a new one."""
        config = self._write(
            "controller",
            {
                "process.roles": "controller",
                "node.id": CONTROLLER,
                "listeners": f"CONTROLLER://127.0.0.1:{self._controller_port}",
                "log.dirs": self._directory / "controller",
                **self._quorum,
                **(self._migration if migrating else {}),
            },
        )
        if not (self._directory / "controller").exists():
            with ZooKeeper(self.connect) as zk:
                node = zk.get(ClusterIdZnode.PATH)
            assert node is not None
            cluster_id = ClusterIdZnode.decode(node.data)
            older = () if metadata_version is None else ("-r", metadata_version)
            done = self.tool("kafka.tools.StorageTool", "format", "-t", str(cluster_id), "-c", str(config), *older)
            assert done.returncode == 0, done.stdout + done.stderr
        self._spawn("controller", self._java(BROKER, [str(config)], heap="256m"))
        self._wait_port("controller", self._controller_port)

    def stop_controller(self, *, for_good: bool = False) -> None:
        """Stop it; ``for_good``: the next one begins with nothing."""
        process = self._processes.pop("controller")
        process.terminate()
        process.wait(90)
        if for_good:
            shutil.rmtree(self._directory / "controller")

    @property
    def _quorum(self) -> dict[str, object]:
        return {
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    @property
    def _migration(self) -> dict[str, object]:
        return {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": self.connect}

    def _spawn_broker(self, broker: int) -> None:
        own: dict[str, dict[str, object]] = {
            "zookeeper": {"broker.id": broker, "zookeeper.connect": self.connect},
            "migrating": {"broker.id": broker, **self._migration, **self._quorum},
            "kraft": {"process.roles": "broker", "node.id": broker, **self._quorum},
        }
        config = self._write(
            f"broker-{broker}",
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]}",
                "log.dirs": self.data_directory(broker),
                "offsets.topic.num.partitions": 1,
                "auto.create.topics.enable": "false",
                **self._options,
                **own[self._kinds[broker]],
                **self._own.get(broker, {}),
            },
        )
        release = self._releases.get(broker, VERSION)
        if release == VERSION:
            java = self._java(BROKER, [str(config)], heap=self._heap)
        else:
            java = [*self._java_line(release, self._heap), BROKER, str(config)]
        self._spawn(f"broker-{broker}", java)

    def _write(self, name: str, properties: dict[str, object]) -> Path:
        config = self._directory / f"{name}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in properties.items() if v is not None))
        return config
