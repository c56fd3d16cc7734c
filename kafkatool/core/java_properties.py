"""Java's .properties text, as ``server.properties``, ``meta.properties`` and clients' properties are written.

Source: java.util.Properties: ``#`` and ``!`` comments, ``=``, ``:`` or blanks between key and value, a backslash at the
end of a line continues it. Unicode escapes are read; the text itself is UTF-8, not Latin-1 as Java's.
"""

import re
from pathlib import Path

from kafkatool.core.errors import ConfigError

_ENTRY = re.compile(r"((?:\\.|[^=:\s\\])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE_END = re.compile(r"\r\n?|\n")  # of all that end a line elsewhere these alone do so in Java
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)

    return _ESCAPE.sub(plain, text)


def escape(value: str) -> str:
    """Return a value as Java itself reads it from a file: it takes those for Latin-1, and a backslash for an escape."""
    units = value.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if " " <= chr(code) <= "~" and chr(code) != "\\" else f"\\u{code:04x}" for code in codes)


def parse_properties(text: str) -> dict[str, str]:
    """Read a text: key -> value; of a key given twice the last value counts, as in Java."""
    found: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        entry = line.lstrip()
        if not entry or entry[0] in "#!":
            continue
        while (len(entry) - len(entry.rstrip("\\"))) % 2:
            entry = entry[:-1] + next(lines, "").lstrip()
        match = _ENTRY.fullmatch(entry)
        assert match is not None  # every group may be empty
        found[_unescape(match[1])] = _unescape(match[2]).strip()
    return found


def load_properties(path: Path) -> dict[str, str]:
    """Read a file's entries. Raises ConfigError when it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text: {e}") from e
