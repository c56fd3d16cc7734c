"""What went through the doors of a cluster: `frames.jsonl`, how many requests of each kind, the members' generations."""

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson


class Record:
    """Takes lines from all doors, by any thread. What is written is in the file at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._lock = threading.Lock()
        self._generations: dict[str, int] = {}
        self.asked: Counter[tuple[str, str]] = Counter()  # by API and client; to be looked at, not through

    def __call__(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            if self._file.closed:
                return
            self._file.write(orjson.dumps(line) + b"\n")
            if line["what"] == "asked":
                self.asked[line["api"], line["client"] or ""] += 1
            elif (line["what"], line["api"], line.get("code")) == ("answered", "JoinGroup", 0):
                self._generations[line["member"]] = line["generation"]

    def generation_of(self, member: str | None) -> int | None:
        """Return the generation that a member's last JoinGroup was answered with, None if it has none yet."""
        with self._lock:
            return self._generations.get(member or "")

    def count(self, *clients: str) -> dict[tuple[str, str], int]:
        """Return how many requests of each API these clients have made."""
        with self._lock:
            return {kind: number for kind, number in self.asked.items() if kind[1] in clients}

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_frames(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that a record wrote."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
