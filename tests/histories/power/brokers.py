"""A cluster whose brokers are started by the wrapper, so that each one's power, disk and clock are in the harness's hand."""

from pathlib import Path
from random import Random
from typing import Any

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.cluster_files import ClusterFiles
from kafkatool.broker.embedded.cluster_processes import ClusterProcesses
from kafkatool.broker.storage.checkpoint import write_entries
from kafkatool.broker.storage.directories import boot_note
from tests.histories.power import control, journal
from tests.histories.power.control import Troubles


def _journal(files: ClusterFiles, broker_id: int) -> Path:
    return files.directory / "power" / f"journal-{broker_id}"


def _control(files: ClusterFiles, broker_id: int) -> Path:
    return files.directory / "power" / f"control-{broker_id}"


class _Processes(ClusterProcesses):
    def command(self, broker_id: int) -> list[str]:
        command = super().command(broker_id)
        module = command.index("-m") + 1
        files = self._files
        known = _journal(files, broker_id), _control(files, broker_id), files.data(broker_id)
        return [*command[:module], "tests.histories.power.wrapper", *map(str, known), *command[module:]]


class PoweredCluster(EmbeddedCluster):
    """``settle`` each broker before its first start."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._processes = _Processes(self.files)

    def settle(self, broker_id: int) -> None:
        """Take what is in the data directory of a broker that does not run for what its disk holds."""
        data = self.files.data(broker_id)
        data.mkdir(parents=True, exist_ok=True)
        journal.settle(_journal(self.files, broker_id), data)
        self.trouble(broker_id, Troubles())

    def cut_power(self, broker_id: int, chance: Random) -> None:
        """Leave of the files of a broker that was killed what its disk may hold."""
        data = self.files.data(broker_id)
        journal.disk_of(_journal(self.files, broker_id), data).cut_power(chance)
        if (note := data / boot_note.FILE).exists():  # the system was started anew, for all that the broker can tell
            write_entries(note, ["before-the-cut"])
        self.settle(broker_id)

    def trouble(self, broker_id: int, troubles: Troubles) -> None:
        """Have its process suffer from its machine, now and when it is started again."""
        control.put(_control(self.files, broker_id), troubles)
