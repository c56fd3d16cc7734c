"""Numbers of bytes as people read them, and flags that take one."""

import re
from typing import Any, Final

import click

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_WITH_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(i?)(?:b(?:/s)?)?", re.IGNORECASE)


class ByteCount(click.IntRange):
    """A flag's number of bytes, as Kafka's tools take it; one with a unit is answered with the number it may mean."""

    name = "number of bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; else end the command with what to write."""
        if isinstance(value, str) and (found := _WITH_UNIT.fullmatch(value.strip())):
            number, unit, binary = found.groups()
            power = "kmgt".index(unit.lower()) + 1
            meant = f"{float(number) * 1024**power:.0f}"
            if not binary:
                meant = f"{float(number) * 1000**power:.0f}, or {meant} for {number} {UNITS[power]}"
            self.fail(f"{value!r} is not a plain number of bytes: write {meant}", param, ctx)
        return super().convert(value, param, ctx)


def byte_size(count: float | None) -> str:
    """Write a size as ``1.5 GiB``; None is ``unknown``."""
    if count is None:
        return "unknown"
    power = _power(count)
    return f"{_digits(count, power)} {UNITS[power]}"


def share_of_bytes(part: float, whole: float) -> str:
    """Write ``166 of 382 MiB``, both in the unit of the whole."""
    power = _power(whole)
    return f"{_digits(part, power)} of {_digits(whole, power)} {UNITS[power]}"


def _power(count: float) -> int:
    return next((p for p in range(len(UNITS)) if count < 1024 ** (p + 1)), len(UNITS) - 1)


def _digits(count: float, power: int) -> str:
    scaled = count / 1024**power
    return f"{scaled:.0f}" if scaled >= 10 or power == 0 else f"{scaled:.1f}"
