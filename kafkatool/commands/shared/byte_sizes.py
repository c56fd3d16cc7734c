"""Numbers of bytes as people read them."""

from typing import Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


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
