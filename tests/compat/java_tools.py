"""Kafka's own tools of one version in one Java: each call is a moment, where a process of its own takes seconds."""

import base64
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from kafkatool.core.java import find_java
from tests.compat.real_kafka import libraries

TOOL_TIMEOUT_S: Final = 240
_LOGGING: Final = "log4j.rootLogger=OFF\n"


class Said(NamedTuple):
    """A tool's exit code, and all it printed."""

    code: int
    text: str


class JavaTools:
    """A context manager: the Java ends with it. ``source`` is one of the programs beside this file."""

    def __init__(self, version: str, directory: Path, source: str = "AdminTools.java") -> None:
        self.version = version
        self._directory = directory
        self._source = Path(__file__).with_name(source)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        logging = self._directory / "log4j.properties"
        logging.write_text(_LOGGING)
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", f"-Dlog4j.configuration=file:{logging}"]
        java = [str(find_java().executable), *options, "-cp", f"{libraries(self.version)}/*", str(self._source)]
        with (self._directory / "java.out").open("ab") as sink:
            self._process = subprocess.Popen(
                java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True, start_new_session=True
            )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, main: str, *arguments: str) -> Said:
        """Run that main class to its end."""
        assert self._process.stdin is not None
        words = (f"={base64.b64encode(word.encode()).decode()}" for word in (main, *arguments))
        self._process.stdin.write(f"{' '.join(words)}\n")
        self._process.stdin.flush()
        code, _, text = self._answers.get(timeout=TOOL_TIMEOUT_S).partition(" ")
        assert code, f"the Java of {self.version} has ended: {(self._directory / 'java.out').read_text()[-2000:]}"
        return Said(int(code), base64.b64decode(text).decode())

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.strip())
        self._answers.put("")
