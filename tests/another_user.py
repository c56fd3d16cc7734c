"""A file of somebody else's: given away where root runs the tests, else this process takes itself for another."""

import os
from pathlib import Path

import pytest

_NOBODYS_ID = 12_345


def give_away(file: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the file neither this user's nor root's, as far as who reads it can tell."""
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(file, _NOBODYS_ID, -1)


def refusal(file: Path | str) -> str:
    """Return what is said of a file that was given away."""
    owner, own = Path(file).stat().st_uid, os.geteuid()
    return (
        f"{file} belongs to user {owner}, who could change it, and this is user {own}: run as that user, "
        f"chown {own} {file}, or use a copy"
    )
