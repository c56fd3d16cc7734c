"""Paths of this machine as Hadoop's file systems are told them: as URIs whose text is not escaped, unlike others."""

import re
from pathlib import Path


def hadoop_name(path: Path) -> str:
    """Return what Hadoop's ``Path`` takes a file's or directory's name from."""
    return f"file://{path.absolute()}"


def hadoop_pattern(path: Path) -> str:
    """Return a pattern that matches the path alone, for what takes patterns."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", hadoop_name(path))
