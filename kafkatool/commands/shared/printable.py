"""Text from elsewhere, made harmless for who reads it: a terminal does what control characters say (SEC-44).

Names of groups, clients and transactional ids, messages of brokers, nodes of ZooKeeper, subjects of certificates and lines
of logs are others' to choose. All that kt prints goes through here, so that no command can forget it; kt's own colours are
put in afterwards, and cannot be forged.
"""

import json
import os
import re
from typing import Any, Final

import click
import orjson

_TURNS: Final = "\u2028-\u202e\u2066-\u2069"  # ends of lines, and what turns the direction of writing
_HALVES: Final = "\ud800-\udfff"  # halves of characters: of bytes that are no text
# Nothing of these is printable to Python, so in nearly all texts they are not looked for, nor made ready to be.
_ALL: Final = f"[\x00-\x1f\x7f-\x9f{_TURNS}{_HALVES}]"
_BUT_LAYOUT: Final = f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}{_HALVES}]"
_NOT_BY_JSON: Final = f"[\x7f-\x9f{_TURNS}]"  # the rest JSON's own rules escape
_OWN: Final = f"<{os.urandom(8).hex()}>"  # stands for the start of a colour until the text around it is harmless
_COLOURS: Final = {"red": 31, "green": 32, "yellow": 33}


def one_line(text: str) -> str:
    """Write every control as ``\\x1b``, ``\\n``, ``\\u202e``: what is a name or a cell stays one."""
    return text if text.isprintable() else re.sub(_ALL, _written, text)


def harmless(text: str) -> str:
    """Do the same but for tabs and ends of lines, which are the layout of kt's own texts; put in kt's colours."""
    if not text.replace("\n", "").isprintable():
        text = re.sub(_BUT_LAYOUT, _written, text)
    return text.replace(_OWN, "\x1b[")


def coloured(text: str, colour: str) -> str:
    """Mark ``text`` for ``harmless`` to colour."""
    return f"{_OWN}{_COLOURS[colour]}m{text}{_OWN}0m"


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text; the one way to stdout and stderr for what holds anything from elsewhere."""
    click.echo(harmless(text), err=err, nl=nl)


def as_json(value: Any) -> str:
    """Write JSON, in which no control stands as itself."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError as e:
        if "surrogates" not in str(e):
            raise
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text if text.isprintable() else re.sub(_NOT_BY_JSON, lambda found: f"\\u{ord(found[0]):04x}", text)


def has_controls(text: str) -> bool:
    """Tell whether there is anything in ``text`` that JSON's own rules leave as it is."""
    return not text.isprintable() and re.search(_NOT_BY_JSON, text) is not None


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
