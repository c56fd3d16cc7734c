"""Power cuts in the midst of whatever a log dir does: what was flushed is there, and all that is there is right.

Every batch is flushed (flush.messages=1), so each that an append came back for is to be found after a power cut.
"""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.protocol.records.batches import check_crc, iter_batches
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import PARTITION, broker_config, everything
from tests.histories.power.disk import Disk
from tests.histories.power.noting import Noting

_STEPS = 25


class Walk:
    """One log dir with one log. ``epochs``: of each offset, the epoch that it was written in, last of all."""

    def __init__(self, root: Path, disk: Disk, chance: Random) -> None:
        self._root, self._chance, self._disk = root, chance, disk
        self._epochs: list[int] = []
        self._epoch = 0
        self._cut_to: int | None = None  # nothing was written behind the cut yet: what it took may come back
        self._load()

    def _load(self) -> None:
        properties = {"log_segment_bytes": "400", "log_index_interval_bytes": "100", "log_retention_ms": "-1"}
        config = broker_config(log_dirs=str(self._root), log_flush_interval_messages="1", **properties)
        self._background = ManualScheduler()
        self._manager = LogManager(config, lambda _: {}, self._background)
        self._manager.load()
        self._log: Log = self._manager.get_or_create(PARTITION)

    def step(self) -> None:
        act = self._chance.choice(
            (self._append, self._append, self._append, self._tasks, self._cut, self._delete, self._end)
        )
        act()

    def _append(self) -> None:
        self._epoch += self._chance.choice((0, 0, 1))
        del self._epochs[self._log.log_end_offset :]
        for _ in range(self._chance.randint(1, 3)):
            self._log.append_as_leader(batch(2, producer=(5, 0, self._log.log_end_offset)), self._epoch)
            self._epochs += [self._epoch] * 2
        self._log.high_watermark = self._log.log_end_offset
        self._cut_to = None

    def _tasks(self) -> None:
        self._background.run()
        self._manager.write_recovery_points()
        self._manager.write_log_starts()

    def _cut(self) -> None:
        to = self._chance.randint(self._log.log_start_offset, self._log.log_end_offset)
        self._log.truncate_to(to)
        end = self._log.log_end_offset
        assert end <= to
        self._cut_to = end if self._cut_to is None else min(self._cut_to, end)
        self._epoch += 1

    def _delete(self) -> None:
        to = self._chance.randint(self._log.log_start_offset, self._log.log_end_offset)
        self._log.high_watermark = self._log.log_end_offset
        self._log.advance_log_start(to)
        self._manager.write_log_starts()

    def _end(self) -> None:
        """End well, or be killed, or by the power; and start again."""
        how = self._chance.choice(("stop", "kill", "power", "power", "stop and power"))
        if how.startswith("stop"):
            self._manager.shutdown()
        else:
            self._manager.abandon()
        if how.endswith("power"):
            self._disk.cut_power(self._chance)
            self._disk.settle(self._root)
        self._load()
        self._check(how)

    def _check(self, how: str) -> None:
        log, least = self._log, len(self._epochs) if self._cut_to is None else self._cut_to
        assert least <= log.log_end_offset <= len(self._epochs), how
        if how != "kill":  # which makes nothing durable
            del self._epochs[log.log_end_offset :]
            self._cut_to = None
        stored, at = everything(log), None
        for position, header in iter_batches(stored):
            assert check_crc(stored, position), how
            assert at in (None, header.base_offset), how
            at = header.next_offset
            for offset in range(max(header.base_offset, log.log_start_offset), at):
                assert header.partition_leader_epoch == self._epochs[offset], how
                assert log.leader_epochs.epoch_at(offset) == self._epochs[offset], how
        assert at in (None, log.log_end_offset), how

    def close(self) -> None:
        self._manager.abandon()


@given(seed=st.integers(0, 1 << 32))
@example(seed=51)  # after a clean stop the producers' snapshot was gone by its name
@example(seed=48)  # what had been cut off before a clean stop came back, or more was gone than that
@example(seed=228)  # so it did with a crash between the two
@pytest.mark.spec("BRK-60", "BRK-137", "BRK-140", "BRK-142")
def test_what_was_flushed_is_there_whenever_the_power_fails(seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        disk = Disk(Path(name))
        with Noting(Path(name), disk.take):
            walk = Walk(Path(name), disk, Random(seed))
            for _ in range(_STEPS):
                walk.step()
            walk.close()
