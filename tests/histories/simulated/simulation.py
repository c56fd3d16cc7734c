"""A run of the simulation: faults and operations are functions of the seed, and what clients saw is a history."""

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL
from tests.broker.replication.world import Clock
from tests.histories.analyser.verdict import Verdict, judge
from tests.histories.history import FAIL, INFO, OK, read_file
from tests.histories.power.disk import Disk
from tests.histories.power.noting import Noting
from tests.histories.simulated.brokers import (
    BROKERS,
    OFFSETS,
    PARTITIONS,
    READ,
    Broker,
    Wires,
)
from tests.histories.simulated.bystanders import Deleter, SessionReader, Watcher
from tests.histories.simulated.clients import Process, Values, end_of, fetch, records_of, start_of
from tests.histories.simulated.controller import Rule, rule_as_written
from tests.histories.simulated.coordination import GROUP, TRANSFORMERS
from tests.histories.simulated.faults import KINDS, Fault, Faults, draw_faults
from tests.histories.simulated.members import Member, committed_of
from tests.histories.simulated.ruled.broker import RuledBroker
from tests.histories.simulated.ruled.realm import rule_for_real
from tests.histories.simulated.ruled.troubles import OWN_KINDS
from tests.histories.simulated.transactors import Transactor, Transformer
from tests.histories.writer import DELETE_RETENTION_MS, Header, HistoryWriter, Options
from tests.simulation.world import SimulationError

DISKS: Final = "disks"
_SETTLED_MS: Final = 6000
_ENDED_MS: Final = 8000  # until the last transaction is over; what is open then hangs
_READER: Final = 1_000_000
_WATCHER: Final = _READER - 1
_SESSION_READER: Final = _READER - 2
_DELETER: Final = _READER + 1  # and after it those that take over from it
_SEGMENT_BYTES: Final = 3000
_KINDS: Final = (Process, Member, Transactor, Transformer, Transactor, Member, Process, Transformer)
PROCESSES: Final = len(_KINDS)
RULED_KINDS: Final = (*KINDS, *OWN_KINDS)

P = TypeVar("P", bound=Process)


class BrokenRuleError(Exception):
    """One of the rules of ``tests.simulation`` was broken, which hold at each write and each order of a controller."""


class StalledError(Exception):
    """After all faults the replicas did not come together again: nothing can be said of what clients saw."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What decides a run. ``absent``: the processes that are left out, by number."""

    seed: int
    operations: int
    processes: int
    faults: tuple[Fault, ...]
    compacted: bool = False
    absent: frozenset[int] = frozenset()
    is_ruled: bool = False
    """By the product's controller, on one of the brokers; else by the written one."""

    @property
    def keeps_batches(self) -> bool:
        """Tell whether all batches are there at the end, by which copies of a value are told apart."""
        return not self.compacted and not {fault.kind for fault in self.faults} & {"delete", "early"}

    @property
    def present(self) -> tuple[int, ...]:
        """Return the processes that are there, by number."""
        return tuple(number for number in range(self.processes) if number not in self.absent)

    def with_only(self, present: Collection[int]) -> "Schedule":
        """Return the schedule with these processes alone."""
        return replace(self, absent=frozenset(range(self.processes)) - frozenset(present))

    @property
    def segment_bytes(self) -> int:
        """Return how large segments are: small, but no log has more than some hundred, all of which each start reads."""
        return max(_SEGMENT_BYTES, self.operations)


def drawn(
    seed: int,
    operations: int,
    kinds: Sequence[str] | None = None,
    *,
    compacted: bool = False,
    processes: int = PROCESSES,
    is_ruled: bool = False,
) -> Schedule:
    """Draw the schedule of a seed, with faults of these kinds, or all that chance may bring, for as long as it may last."""
    kinds = kinds or (RULED_KINDS if is_ruled else KINDS)
    faults = draw_faults(Random(f"faults {seed}"), operations * 12, kinds)
    return Schedule(seed, operations, processes, faults, compacted, is_ruled=is_ruled)


class Simulation:
    """One run, into one file. A step is a ms."""

    def __init__(self, directory: Path, schedule: Schedule, disk: Disk, clock: Clock) -> None:
        self._schedule = schedule
        self._chance = Random(f"steps {schedule.seed}")
        self._clock, self._wires = clock, Wires()
        self._values = Values(compacted=schedule.compacted, may_be_renumbered=schedule.keeps_batches)
        self._brokers: dict[int, Broker] = {}
        for broker in BROKERS:
            self._brokers[broker] = (RuledBroker if schedule.is_ruled else Broker)(
                broker,
                directory / DISKS / str(broker),
                self._clock,
                self._wires,
                self._brokers,
                Random(f"between {schedule.seed} {broker}"),
                self._values.producer_id,
                disk,
                schedule.segment_bytes,
                schedule.compacted,
            )
        told_of = self._brokers, self._wires, self._clock
        self.controller: Rule = (
            rule_for_real(schedule.seed, *told_of) if schedule.is_ruled else rule_as_written(*told_of)
        )
        self._writer = HistoryWriter(
            directory / "history.jsonl", _header(schedule), clock=lambda: int(self._clock() * 1e6)
        )
        self._is_playing, self._done = False, 0
        told = (self._brokers, self.controller, self._wires, self._clock, self._chance)
        self._faults = Faults(*told, self._tell, self._delete)
        self._doubted: list[Process] = []  # that go on beside who has taken over from them
        self._processes = [self._process(n, _kind_of(n)) for n in schedule.present]
        self._watcher = self._process(_WATCHER, Watcher)
        own = Values()  # they send nothing: what others get is the same with and without them
        self._session_reader = self._process(_SESSION_READER, SessionReader, own)
        self._deleter = self._process(_DELETER, Deleter, own)

    def play(self) -> None:
        """Let the operations be done while faults come and go, then read everything. Raises StalledError."""
        with self._writer:
            while not self.controller.has_begun():
                self._step()
            self._faults.plan(self._schedule.faults)
            self._is_playing = True
            while self._done + sum(process.done for process in self._clients()) < self._schedule.operations:
                self._step()
            self._is_playing = False
            self._settle()
            self._read_everything()
        for broker in self._brokers.values():
            broker.kill()

    # --- time -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.controller.step(self._tick)

    def _tick(self) -> None:
        """Let all that happens in a ms happen: more may come in between, wherever somebody waits."""
        self._clock.pass_ms(1)
        self._faults.pass_ms()
        self.controller.pass_ms()
        for broker in self._brokers.values():
            if broker.alive and not broker.frozen:
                for _ in range(4):
                    broker.step(self._chance)
        if not self.controller.has_begun():
            return
        processes = self._clients()
        for process in self._chance.sample(processes, (len(processes) + 1) // 2):
            process.step()
        for bystander in self._bystanders():
            bystander.step()
        if self._deleter.over:
            self._deleter = self._process(self._deleter.number + 1, Deleter, Values())
        if self._is_playing:
            self._take_over()

    def _take_over(self) -> None:
        """Have others take the places of those that are over, or taken for dead."""
        for place, process in enumerate(self._processes):
            if process.over or process.is_doubted:
                if process.over:
                    self._done += process.done
                else:
                    self._doubted.append(process)
                number = process.number + self._schedule.processes
                self._processes[place] = self._process(number, _kind_of(number))
                self._processes[place].succeed(process)
        self._done += sum(process.done for process in self._doubted if process.over)
        self._doubted = [process for process in self._doubted if not process.over]

    def _tell(self, fault: Fault) -> None:
        until = int((self._clock() + fault.lasts) * 1e6)  # or so: of some it is other faults that end them
        self._writer.write("nemesis", INFO, "fault", {"begins": True, "faults": [str(fault)], "until": until})

    def _delete(self, key: int) -> None:
        self._deleter.wanted.append(key)

    def _clients(self) -> list[Process]:
        return [*self._processes, *self._doubted]

    def _bystanders(self) -> list[Process]:
        return [self._watcher, self._session_reader, self._deleter]

    def _process(self, number: int, kind: type[P], values: Values | None = None) -> P:
        chance = Random(f"process {self._schedule.seed} {number}")
        values = values or self._values
        return kind(number, chance, self._brokers, self.controller, self._clock, self._writer, values)

    # --- the end --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let what is under way end, mend everything, and wait until all replicas are in sync."""
        self._faults.is_over = True
        self.controller.calm()
        for process in (*self._clients(), *self._bystanders()):
            process.is_wanted = False
        over = self._clock() + _SETTLED_MS
        while self._clock() < over:
            if not any(process.is_busy for process in (*self._clients(), *self._bystanders())) and self._is_well():
                self._await_ends()
                return
            self._wires.mend()
            for broker in self._brokers.values():
                broker.thaw()
                broker.stalled = ()
                if not broker.alive and self.controller.may_start(broker):
                    broker.start()
            self._step()
        why = self.controller.trouble() or "not in sync"
        raise StalledError(f"seed {self._schedule.seed}: after all faults {why}")

    def _await_ends(self) -> None:
        """Let the transactions that are open be ended by their coordinator."""
        over = self._clock() + _ENDED_MS
        while self._clock() < over and not (all(map(self._is_stable, PARTITIONS)) and self._has_stable_offsets()):
            self._step()

    def _is_stable(self, key: int) -> bool:
        partition = self._leader_of(key).partitions[key]
        end = partition.log.log_end_offset
        return partition.high_watermark.offset == end == partition.log.last_stable_offset

    def _has_stable_offsets(self) -> bool:
        return all(committed_of(self._leader_of(OFFSETS), group) is not None for group in (GROUP, TRANSFORMERS))

    def _leader_of(self, key: int) -> Broker:
        return self._brokers[self.controller.state(key)[0].leader or 0]

    def _is_well(self) -> bool:
        if not self.controller.all_in_sync() or self.controller.trouble():
            return False
        for key in PARTITIONS:
            state, _ = self.controller.state(key)
            partition = self._brokers[state.leader or 0].partitions.get(key)
            if partition is None or not partition.is_leader or partition.leader_epoch != state.leader_epoch:
                return False
            if partition.high_watermark.offset != partition.log.log_end_offset:
                return False
        return self._leader_of(OFFSETS).coordination.serves(GROUP)

    def _read_everything(self) -> None:
        write = self._writer.write
        leaders = {key: self._leader_of(key) for key in READ}
        ends = {key: (start_of(leaders[key], key) or 0, end_of(leaders[key], key)) for key in READ}
        write(_READER, "invoke", "ends")
        write(_READER, OK, "ends", ends, isolation="read_uncommitted")
        write(_READER, "invoke", "assign", list(READ))
        write(_READER, OK, "assign", list(READ), **{"from": "start"})
        positions = {key: start for key, (start, _) in ends.items()}
        for key, leader in leaders.items():
            before = -1
            while before < positions[key]:
                before = positions[key]
                read = fetch(leader, key, before)
                pairs, positions[key] = records_of(read.records, read.aborted, before)
                if pairs:
                    write(_READER, "invoke", "poll", [["poll"]])
                    write(_READER, OK, "poll", [["poll", {key: pairs}]])
        write(_READER, "invoke", "final")
        write(_READER, OK, "final", positions)
        for group in (GROUP, TRANSFORMERS):
            write(_READER, "invoke", "committed", group=group)
            committed = committed_of(self._leader_of(OFFSETS), group)
            write(_READER, FAIL if committed is None else OK, "committed", committed, group=group)
        write(_READER, "invoke", "batches")
        write(_READER, OK, "batches", {key: list(_batches(leader, key)) for key, leader in leaders.items()})


def _kind_of(number: int) -> type[Process]:
    return _KINDS[number % len(_KINDS)]


def _batches(broker: Broker, key: int) -> list[tuple[int, int, int, int, int, bool, bool]]:
    return [
        (
            h.base_offset,
            h.last_offset,
            h.producer_id,
            h.producer_epoch,
            h.base_sequence,
            bool(h.attributes & TRANSACTIONAL),
            bool(h.attributes & CONTROL),
        )
        for segment in broker.partitions[key].log.segments
        for _, h in segment.headers()
    ]


def _header(schedule: Schedule) -> Header:
    options: Options = {
        "acks": "all",
        "idempotent": True,
        "transactional": True,
        "in_flight": 5,
        "isolation": "read_committed",
        "via": "assign",
        "reset": "earliest",
        "min_isr": 2,
        "unclean": False,
        "cleanup": "compact" if schedule.compacted else "delete",
        "delete_retention_ms": DELETE_RETENTION_MS,
        "client": "simulated",
        "faults": True,
    }
    return {
        "seed": schedule.seed,
        "source": "simulation",
        "version": "",
        "brokers": len(BROKERS),
        "client": "simulated",
        "options": options,
    }


def run(
    directory: Path, schedule: Schedule, listening: Callable[[Clock], AbstractContextManager[object]] = nullcontext
) -> Verdict:
    """Play a schedule in an empty directory and judge what was seen. Raises StalledError, BrokenRuleError.

    ``listening``: given the clock of the run, is about while it is played.
    """
    shutil.rmtree(directory, ignore_errors=True)
    (disks := directory / DISKS).mkdir(parents=True)
    disk, clock = Disk(disks), Clock()
    with listening(clock), Noting(disks, disk.take):
        try:
            Simulation(directory, schedule, disk, clock).play()
        except SimulationError as e:
            raise BrokenRuleError(f"seed {schedule.seed}: {e}") from e
    return judge(read_file(directory / "history.jsonl"))
