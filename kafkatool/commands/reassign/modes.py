"""The modes of ``kt reassign``, and what is said about flags that do not go together (RSN-1)."""

import importlib
import shlex
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import brokers_flags, connect, to_type
from kafkatool.commands.shared.output import Output
from kafkatool.core.errors import UsageError
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import Endpoint, in_number
from kafkatool.core.planner.plan_files import STDIN, Moves, PartitionName, parse_plan, read_text

if TYPE_CHECKING:  # who asks brokers starts without what carries a plan into ZooKeeper
    from kafkatool.core.client.cluster import ClusterClient
    from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
    from kafkatool.core.zookeeper.session import ZooKeeper

RATE: Final = "B/S"
"""Stands for a throttle in what is to be typed; no number, so kt refuses it as it is."""
RATE_MEANS: Final = "bytes per second and broker; unthrottled only without the flag"

FIXED_BY_THE_FIRST_RUN: Final = {  # and not taken by --resume
    *("throttle", "skip_unchanged", "rollback_file"),
    *("max_json_size", "batch_partitions", "dry_run"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode(ABC):
    """The flags that all modes take. ``LACKING`` is said where one of ``REQUIRED`` is not given."""

    REQUIRED: ClassVar[tuple[str, ...]] = ()
    LACKING: ClassVar[str]

    zookeeper: str
    bootstrap: Bootstrap | None
    out: Output
    name_of: PartitionName
    cluster_id: str | None
    zk_max_bytes: int

    @abstractmethod
    def carry_out(self) -> int:
        """Do what was asked for, show it, and return the exit code. Raises KafkatoolError."""

    def session(self) -> "AbstractContextManager[ZooKeeper]":
        """Connect to ZooKeeper for this command."""
        return connect(self.zookeeper, cluster_id=self.cluster_id, zk_max_bytes=self.zk_max_bytes)

    def client(self) -> "AbstractContextManager[ClusterClient]":
        """Connect to the brokers for this command."""
        assert self.bootstrap is not None
        return connect_brokers(self.bootstrap, cluster_id=self.cluster_id)

    def to_type(self, rest: str) -> str:
        """Return what to type for another mode on the same cluster."""
        return to_type("reassign", self.zookeeper, self.cluster_id, self.bootstrap, rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMode(Mode):
    """The flags that all modes take that work on a plan."""

    REQUIRED = ("reassignment_json_file",)

    reassignment_json_file: str
    rollback_file: Path | None
    timeout: float | None

    @property
    def files(self) -> "RunFiles":
        """Return the files of the plan's runs."""
        from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles

        return RunFiles(self.reassignment_json_file, self.rollback_file)

    def read_plan(self) -> Moves:
        """Read the plan. Raises UsageError, RefusedError."""
        source = self.reassignment_json_file
        return parse_plan(read_text(source, sys.stdin), "stdin" if source == STDIN else source, name_of=self.name_of)

    def note_not_under_way(self, found: Sequence[Move], sending: str) -> None:
        """Say that nothing of what is not as planned is under way, as far as is seen, and what to type to send it."""
        counts = Counter(move.status for move in found)
        gone, failed = sum(not move.current for move in found), counts[Status.FAILED]
        if gone:
            missing = in_number(len(found), "partition does not exist", "partitions do not exist")
            self.out.note(f"{gone} of {missing}: the plan is stale, or that of another cluster")
        elif failed and not counts[Status.IN_PROGRESS]:
            others = in_number(len(found), "partition is", "partitions are")
            self.out.note(
                f"{failed} of {others} not as planned, and nothing is under way: not sent, or given up by the controller "
                "(its log says why), or still to be sent by a kt on another machine"
            )
            self.out.note(sending)

    def read_rollback(self, plan: Moves) -> Moves:
        """Read the way back of the plan. Raises UsageError, RefusedError."""
        return self.files.read_rollback(plan, sys.stdin, name_of=self.name_of)

    def command(self, mode: str) -> str:
        """Return what to type to do ``mode`` with the same plan; one from stdin stays there."""
        return self.to_type(f"{mode} {self._plan}")

    def asking_brokers(self, endpoint: Endpoint, mode: str) -> str:
        """Return what to type to do ``mode`` with the same plan by requests to brokers."""
        return f"kt reassign{brokers_flags(endpoint, self.cluster_id)} {mode} {self._plan}"

    @property
    def _plan(self) -> str:
        stdin = " < PLAN" if self.reassignment_json_file == STDIN else ""
        return f"--reassignment-json-file {shlex.quote(self.reassignment_json_file)}{stdin}"

    def cancelling(self, *, rollback: bool) -> str:
        """Return the flags that cancel the plan; ``rollback``: what has ended goes back too."""
        return "--cancel" + " --rollback" * rollback + self.own_rollback

    def waiting(self, *, rollback: bool) -> str:
        """Return the flags that wait for the plan's end, or for that of its ``rollback``."""
        return "--verify --wait" + f" --rollback{self.own_rollback}" * rollback

    @property
    def sending(self) -> str:
        """Return what to type to send the plan, and what it means.

        The throttle it was meant to move under is not known here. What is printed is refused until a rate is written in,
        so that nobody who pastes it moves without one unawares.
        """
        return f"{self.command(f'--execute --throttle {RATE}')}  # send them; {RATE}: {RATE_MEANS}"

    @property
    def own_rollback(self) -> str:
        """Return what to type for the file of the way back, if it is not the one beside the plan."""
        return "" if self.rollback_file is None else f" --rollback-file {shlex.quote(str(self.rollback_file))}"


def chosen(
    kinds: Mapping[str, str], names: Sequence[str], flags: dict[str, Any], parameters: Sequence[click.Parameter]
) -> Mode:
    """Return the one mode with its flags. ``kinds`` names its class, ``module:name``, which is imported when it is chosen.

    Raises UsageError: none or several, a foreign flag, one that is missing."""
    if len(set(names)) != 1:
        raise UsageError(
            "Command must include exactly one action: --generate, --execute or --verify", now="or kt's --cancel, --list"
        )
    name = names[0]
    asks_controllers = flags["bootstrap"] is not None and flags["bootstrap"].controllers
    if name not in kinds:
        raise UsageError(f'Option "[bootstrap-controller]" can\'t be used with action "[{name}]"')
    module, _, class_name = kinds[name].partition(":")
    kind: type[Mode] = getattr(importlib.import_module(module), class_name)
    for rate in ("throttle", "replica_alter_log_dirs_throttle"):
        if flags[rate] == -1:
            flags[rate] = None  # Kafka's spelling of none
    taken = {f.name for f in fields(kind)}
    if name == "cancel" and not flags["rollback"]:
        taken.discard("throttle")  # which is for the way back
    given = {p.name: p.opts[0] for p in parameters if p.name in flags and _is_given(flags[p.name])}
    if foreign := [flag for parameter, flag in given.items() if parameter not in taken]:
        if asks_controllers:
            option = foreign[0].removeprefix("--")
            raise UsageError(f'Option "[bootstrap-controller]" can\'t be used with option "[{option}]"')
        if flags["bootstrap"] is not None:
            raise UsageError(f'Option "[{foreign[0].removeprefix("--")}]" can\'t be used with action "[{name}]"')
        raise UsageError(f"{foreign[0]} can't be used with --{name}")
    if not all(flags[required] for required in kind.REQUIRED):
        raise UsageError(kind.LACKING)
    if flags["resume"] and (
        fixed := [flag for parameter, flag in given.items() if parameter in FIXED_BY_THE_FIRST_RUN]
    ):
        raise UsageError(f"{fixed[0]} can't be used with --resume")
    if name == "verify" and flags["rollback_file"] is not None and not flags["rollback"]:
        raise UsageError("--rollback-file needs --rollback with --verify")
    if flags["timeout"] is not None and name != "cancel" and not (flags["wait"] or flags["resume"]):
        raise UsageError("--timeout needs --wait")
    return kind(**{f.name: flags[f.name] for f in fields(kind)})


def _is_given(value: object) -> bool:
    """Tell a flag's value from that of one that was not given; 0 is a value."""
    return value is not None and value is not False
