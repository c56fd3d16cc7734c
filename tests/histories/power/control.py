"""What a process that is started by the wrapper suffers from its machine: a file that the harness writes and it reads."""

import mmap
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

_NAME_BYTES: Final = 256
_FORM: Final = struct.Struct(f"<ddddq{_NAME_BYTES}s")


class Troubles(NamedTuple):
    """Its wall clock is ``leap_s`` ahead, and from ``since_s`` of the monotonic clock on gains ``drift`` of each second.

    A sync takes ``sync_s`` longer. The ``failing_write``-th write from now on fails, and all after it; 0: none does. With
    ``failing_in``, those of files in a directory of that name are counted alone, and fail.
    """

    leap_s: float = 0.0
    drift: float = 0.0
    since_s: float = 0.0
    sync_s: float = 0.0
    failing_write: int = 0
    failing_in: str = ""

    @property
    def ahead_s(self) -> float:
        """How far the wall clock is ahead by now."""
        return self.leap_s + self.drift * (time.monotonic() - self.since_s)


def put(file: Path, troubles: Troubles) -> None:
    """Have the process suffer these from now on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("r+b" if file.exists() else "w+b", buffering=0) as opened:
        name = troubles.failing_in.encode()
        assert len(name) <= _NAME_BYTES
        opened.write(_FORM.pack(*troubles[:-1], name))


class Reader:
    """Reads it as often as wanted: it is mapped."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as opened:
            self._mapped = mmap.mmap(opened.fileno(), _FORM.size, access=mmap.ACCESS_READ)

    def read(self) -> Troubles:
        *others, name = _FORM.unpack_from(self._mapped)
        return Troubles(*others)._replace(failing_in=name.rstrip(b"\0").decode())
