"""A client program at work: its lines as they come, its end."""

import json
import os
import queue
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.compat.client_programs import Program
from tests.paths import ROOT

END_S: Final = 180


class ClientProcess:
    """A context manager; whatever still runs at its end is killed.

    ``records``: (topic, partition) -> offset -> (key, value). ``count`` is of records told, with those told twice.
    """

    def __init__(self, program: Program, log: Path, *arguments: str) -> None:
        self.client = ""
        self.acknowledged: set[int] = set()
        self.assigned: tuple[int, ...] = ()
        self.records: defaultdict[tuple[str, int], dict[int, tuple[str, str]]] = defaultdict(dict)
        self.count = 0
        self.contradictions: list[str] = []
        self._outcomes: queue.Queue[str] = queue.Queue()
        self._log = log
        self._asked = False
        log.unlink(missing_ok=True)
        with log.open("ab") as sink:  # stacks are put between
            self._process = subprocess.Popen(
                [*program.command, *arguments],
                cwd=ROOT,
                env={**os.environ, **program.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,  # a program may have children, to be killed with it
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if self._asked and not text.startswith(b"{"):  # Java's stacks
                with self._log.open("ab") as sink:
                    sink.write(text)
                continue
            line = json.loads(text)
            if "record" in line:
                topic, partition, offset, key, value = line["record"]
                known = self.records[topic, partition].setdefault(offset, (key, value))
                if known != (key, value):
                    self.contradictions.append(f"{topic}-{partition} at {offset}: {known}, then {(key, value)}")
                self.count += 1
            elif "acknowledged" in line:
                self.acknowledged.add(line["acknowledged"])
            elif "done" in line:
                self._outcomes.put("")
            elif "failed" in line:
                self._outcomes.put(line["failed"])
            elif "assigned" in line:
                self.assigned = tuple(line["assigned"] or ())
            else:
                self.client = line["client"]

    def read_of(self, topic: str) -> set[tuple[str, str]]:
        """(key, value) of the records read from that topic."""
        return {r for (t, _), records in list(self.records.items()) if t == topic for r in list(records.values())}

    def step(self, *words: object, seconds: float = END_S) -> str:
        """Have it do one step of ``transactions``. Return why it failed, "" if it did not."""
        self.check_alive()
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self._process.stdin.flush()
        try:
            return self._outcomes.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"{words} has no outcome after {seconds:g} s: {self.words()}") from None

    def check_alive(self) -> None:
        """AssertionError with its last words if it has ended."""
        assert (code := self._process.poll()) is None, f"ended with {code}: {self.words()}"

    def finish(self, seconds: float = END_S) -> None:
        """Wait for the end that its work has."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not done after {seconds:g} s: {self.words()}") from None
        self._reader.join()
        assert code == 0, f"ended with {code}: {self.words()}"
        assert not self.contradictions, self.contradictions[:3]

    def end(self, seconds: float = END_S) -> None:
        """End its stdin, which asks it to finish, and wait for it."""
        self.check_alive()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.finish(seconds)

    def kill(self) -> None:
        """kill -9, with its children."""
        self.send(signal.SIGKILL)
        self._process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP while the block runs, then SIGCONT."""
        assert self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> bool:
        """Send it and its children a signal; tell if it has not ended."""
        if self._process.poll() is not None:
            return False
        self._asked |= number == signal.SIGQUIT
        os.killpg(self._process.pid, number)
        return True

    def words(self) -> str:
        """Return the last it said on stderr."""
        return self._log.read_text(errors="replace").strip()[-600:] or "(it said nothing)"
