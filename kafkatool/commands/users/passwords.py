"""Passwords: from a file, from stdin, or typed twice without echo; never from an argument (SEC-2, SEC-94)."""

import sys
from pathlib import Path

import click

from kafkatool.commands.shared.printable import say
from kafkatool.core.errors import ConfigError, UsageError
from kafkatool.core.security.credential_files import read_credential_bytes

STDIN = "-"


def read_password(file: str | None, user: str) -> bytes:
    """Return the password's UTF-8 bytes. Raises UsageError."""
    if file == STDIN:
        data = sys.stdin.buffer.read()
    elif file is not None:
        try:
            data, notes = read_credential_bytes(Path(file))
        except OSError as e:
            raise UsageError(f"--password-file {file}: {e.strerror}") from e
        except ConfigError as e:
            raise UsageError(f"--password-file: {e}") from e
        for note in notes:
            say(f"kt: warning: {note}", err=True)
    elif sys.stdin.isatty():
        text: str = click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True)
        data = text.encode()
    else:
        raise UsageError("off a terminal the password comes by --password-file FILE, or - for standard input")
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        data.decode()
    except UnicodeDecodeError:
        raise UsageError("the password is not UTF-8") from None  # an error that names bytes would show some of it
    if not data or b"\0" in data:
        raise UsageError("the password is empty, or holds a NUL")
    return data
