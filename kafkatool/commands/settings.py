"""Defaults of flags from ./.kafkatool.toml, else the user's ~/.config/kafkatool/config.toml (COM-7X).

A file is a flat list of flag names without the dashes: ``zookeeper = "zk1:2181/kafka"``.
"""

import os
from functools import cache
from pathlib import Path
from typing import Final

from kafkatool.core.errors import UsageError

LOCAL_FILE: Final = ".kafkatool.toml"
KEYS: Final = ("zookeeper", "output", "cluster-id", "zk-max-bytes", "partition-form")


def user_file() -> Path:
    """The user's own file, by the XDG rule."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kafkatool" / "config.toml"


def setting(key: str) -> str | None:
    """The value of ``key``: the directory's file first, then the user's. Raises UsageError on a bad file."""
    for path in (Path(LOCAL_FILE), user_file()):
        if path.is_file():
            value = _read(path.resolve()).get(key)
            if value is not None:
                return value
    return None


@cache
def _read(path: Path) -> dict[str, str]:
    import tomllib

    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"cannot read settings {path}: {e}") from e
    for key, value in values.items():
        if key not in KEYS:
            raise UsageError(f"settings {path}: unknown setting {key!r}; there are {', '.join(KEYS)}")
        if isinstance(value, dict | list):
            raise UsageError(f"settings {path}: {key} is not a single value")
    return {key: str(value) for key, value in values.items()}
