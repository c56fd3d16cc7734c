"""The command line that the matrix scripts share: some columns or rows by name, and whether to renew the page."""

import argparse
import signal
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Arguments:
    """What was chosen, and the flags."""

    chosen: list[str]
    write: bool
    flags: frozenset[str]


def parse(
    program: str,
    description: str | None,
    kind: str,
    known: Collection[str],
    page: str,
    flags: Mapping[str, str] = MappingProxyType({}),
) -> Arguments:
    """Read names of ``kind``, all when none is given, ``--write``, and ``flags`` of the script's own with their help.

    SIGTERM exits from now on, so that what runs ends.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    for flag, meaning in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=meaning)
    parser.add_argument("chosen", nargs="*", metavar=kind.upper(), help=f"of {', '.join(known)}; all when left out")
    parser.add_argument("--write", action="store_true", help=f"renew {page}; with all {kind}s only")
    options = parser.parse_args()
    chosen = options.chosen or list(known)
    if unknown := set(chosen) - set(known):
        parser.error(f"no such {kind} here: {', '.join(sorted(unknown))}")
    if options.write and set(chosen) != set(known):
        parser.error(f"--write needs all {kind}s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return Arguments(chosen, options.write, frozenset(flag for flag in flags if getattr(options, flag)))
