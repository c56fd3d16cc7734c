"""Clocks of the brokers: a log's local times become UTC, an hour that a clock change repeats included (SCL-15X).

Lines carry no zone. With one given, order and bounds go by UTC. The hour repeated in autumn is ambiguous in the text,
not in the file: the second one begins where the times step back, so that place is searched once for each log.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kafkatool.core.errors import UsageError
from kafkatool.core.statelog.sources.source import Source

STEP_BACK_S = 60
"""A step back at least so large, inside an hour that occurs twice, is the clock change and no mere disorder."""

_READ_BYTES = 8 << 20
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d\d))?")
_TIMES = re.compile(rb"^\[?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3}", re.MULTILINE)
_MINUTE = "%Y-%m-%d %H:%M"


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one log. ``folds``: for each repeated hour its local beginning, end, and where in the log the
    second one begins (offset)."""

    zone: str
    folds: tuple[tuple[bytes, bytes, int], ...] = field(default=())

    def utc(self, time: bytes, offset: int) -> bytes:
        """Return a local time ``yyyy-MM-dd HH:mm:ss,SSS`` of the line at ``offset`` as UTC, in the same form.

        What is no time at all (the 39th of a month) stays as it is.
        """
        minute = time[:16]
        second_pass = any(begin <= minute < end and offset >= place for begin, end, place in self.folds)
        return _utc_minute(self.zone, minute, second_pass) + time[16:]


def find_zone(name: str) -> tzinfo:
    """Return a zone by its IANA name (Europe/Berlin) or its difference from UTC (+02:00). UsageError."""
    if found := _OFFSET.fullmatch(name):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise UsageError(
            f"--tz {name}: no such time zone on this machine; write Europe/Berlin or +02:00 (pip install tzdata)"
        ) from e


def clocks(sources: Sequence[Source], options: Sequence[str]) -> tuple[Clock | None, ...]:
    """Return each log's clock from the texts ZONE (for all) and PATH=ZONE; without any, None for all. UsageError."""
    if not options:
        return (None,) * len(sources)
    common, own = "UTC", {}
    for option in options:
        path, equals, zone = option.rpartition("=")
        find_zone(zone)
        if equals:
            own[str(Path(path).resolve())] = zone
        else:
            common = zone
    names = [str(Path(source.name).resolve()) for source in sources]
    beneath = {path for path in own for name in names if name == path or name.startswith(f"{path}/")}
    if unused := set(own) - beneath:
        raise UsageError(f"--tz: {min(unused)} is not among the logs")

    def zone_of(name: str) -> str:
        longest = max((path for path in own if name == path or name.startswith(f"{path}/")), key=len, default=None)
        return own[longest] if longest else common

    return tuple(clock(source, zone_of(name)) for source, name in zip(sources, names, strict=True))


def clock(source: Source, zone: str) -> Clock:
    """Return the clock of a log in that zone; its repeated hours are searched in the file."""
    _, first = source.next_record(0)
    if first is None:
        return Clock(zone)
    last = _last_time(source) or first
    return Clock(
        zone,
        tuple(
            (begin, end, place)
            for begin, end in _repeated_hours(zone, first, last)
            if (place := _step_back(source, begin, end)) is not None
        ),
    )


@lru_cache(maxsize=100_000)
def _utc_minute(zone: str, minute: bytes, second_pass: bool) -> bytes:
    try:
        local = datetime.strptime(minute.decode(), _MINUTE)
    except ValueError:
        return minute
    moment = local.replace(tzinfo=find_zone(zone), fold=int(second_pass))
    try:
        return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M").rjust(16, "0").encode()
    except OverflowError:
        return minute


def _last_time(source: Source) -> bytes | None:
    """Return the time of a record near the end: the last one, if it is within the last bytes read."""
    found = None
    look = 64 * 1024
    while found is None and look // 4 < source.size:
        data = source.read(max(source.size - look, 0), source.size)
        found = max((match[1] for match in _TIMES.finditer(data)), default=None)
        look *= 4
    return found


def _repeated_hours(zone: str, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
    """Return the local times (to the minute, end excluded) that occur twice between two local times."""
    local_zone = find_zone(zone)
    try:
        day = datetime.strptime(first[:10].decode(), "%Y-%m-%d") - timedelta(days=1)
        end = datetime.strptime(last[:10].decode(), "%Y-%m-%d") + timedelta(days=1)
    except (ValueError, OverflowError):
        return []
    hours = []
    while day <= end:
        after = day + timedelta(days=1)
        if local_zone.utcoffset(day) != local_zone.utcoffset(after):
            minutes = [day + timedelta(minutes=m) for m in range(24 * 60)]
            twice = [m for m in minutes if (_offset(local_zone, m, 0) or 0) > (_offset(local_zone, m, 1) or 0)]
            if twice:
                stop = twice[-1] + timedelta(minutes=1)
                hours.append((twice[0].strftime(_MINUTE).encode(), stop.strftime(_MINUTE).encode()))
        day = after
    return hours


def _offset(zone: tzinfo, local: datetime, fold: int) -> float | None:
    offset = zone.utcoffset(local.replace(fold=fold))
    return offset.total_seconds() if offset is not None else None


def _step_back(source: Source, begin: bytes, end: bytes) -> int | None:
    """Return the offset where the times of that hour step back: the second pass begins there. None: nowhere."""
    low, high = 0, source.size
    while high - low > 64 * 1024:  # times below ``begin`` all stand before those above it: the change is in between
        middle = (low + high) // 2
        _, time = source.next_record(middle)
        if time is not None and time < begin:
            low = middle
        else:
            high = middle
    latest, offset = b"", source.next_record(low)[0]
    while offset < source.size:
        stop = source.next_record(min(offset + _READ_BYTES, source.size))[0]
        data = source.read(offset, stop)
        for match in _TIMES.finditer(data):
            if match[1] >= end and latest:
                return None
            if begin <= match[1] < end:
                if latest and _seconds(latest) - _seconds(match[1]) >= STEP_BACK_S:
                    return offset + match.start()
                latest = max(latest, match[1])
        offset = stop
    return None


def _seconds(time: bytes) -> int:
    hours, minutes, seconds = time[11:].split(b":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)
