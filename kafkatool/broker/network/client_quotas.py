"""Byte-rate quotas of clients: a client that produces or consumes too much is held back (BRK-22).

The quota of the narrowest entity that has one applies; clients that share an entity share its rate.
A user is the principal's name: ANONYMOUS on PLAINTEXT. Source: Kafka 1.1.1 server/ClientQuotaManager.scala,
common/metrics/stats/Rate.java.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.core.zookeeper.znodes import ConfigZnode

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
_ANY = ConfigZnode.DEFAULT
_FEW_RATES: Final = 1000  # so many are kept though nothing was counted lately


class Entity(NamedTuple):
    """The owner of a quota: a user, a client id, both; ``<default>`` for any; None for not looked at."""

    user: str | None
    client_id: str | None


def parse_entity(entity_type: str, name: str) -> Entity:
    """Read the type and the rest of an entity path, names encoded: ``users`` and ``u/clients/c``."""
    if entity_type == "clients":
        return Entity(None, unquote(name))
    user, _, client_id = name.partition("/clients/")
    return Entity(unquote(user), unquote(client_id) or None)


class _Rate:
    """Bytes a second over the last ``samples`` windows; a young one is spread over all windows but the current."""

    def __init__(self, samples: int, window_s: float) -> None:
        self._samples, self._window_s = samples, window_s
        self._counts: deque[tuple[float, int]] = deque()

    def record(self, size_bytes: int, now: float) -> tuple[float, float]:
        """Count the bytes; return the rate and the seconds it was taken over."""
        if self._counts and now - self._counts[-1][0] < self._window_s:
            start, count = self._counts.pop()
            self._counts.append((start, count + size_bytes))
        else:
            self._counts.append((now, size_bytes))
        while self._is_over(self._counts[0][0], now):
            self._counts.popleft()
        span_s = max(now - self._counts[0][0], (self._samples - 1) * self._window_s, self._window_s)
        return sum(count for _, count in self._counts) / span_s, span_s

    def is_over(self, now: float) -> bool:
        """Tell whether all windows are over, so that it is as good as a new one."""
        return self._is_over(self._counts[-1][0], now)

    def _is_over(self, start: float, now: float) -> bool:
        return now - start >= self._samples * self._window_s


class ClientQuotas:
    """The quotas of one broker's clients. Thread-safe. Costs nothing while no quota is set."""

    def __init__(self, config: BrokerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._samples, self._window_s = config.quota_window_num, config.quota_window_size_seconds
        self._defaults = {PRODUCE: config.quota_producer_default, FETCH: config.quota_consumer_default}
        self._clock = clock
        self._lock = threading.Lock()
        self._limits: dict[Entity, Mapping[str, float]] = {}
        self._rates: dict[tuple[str, Entity], _Rate] = {}
        self._most_rates = _FEW_RATES  # beyond it, those that are over go: client ids are the clients' to choose
        self.active = self._is_active()

    def _is_active(self) -> bool:
        limited = any(limit < NO_LIMIT for limit in self._defaults.values())
        return limited or any(self._limits.values())

    def put(self, entity: Entity, overrides: Mapping[str, str]) -> None:
        """Take over the entity's configs. Raises ValueError for a rate that is no number."""
        limits = {kind: float(overrides[kind]) for kind in (PRODUCE, FETCH) if kind in overrides}
        with self._lock:
            self._limits[entity] = limits
            self._rates = {}  # the entities that share a rate may have changed
            self.active = self._is_active()

    def charge(self, kind: str, user: str, client_id: str, size_bytes: int) -> int:
        """Count bytes of that user's client; return the ms it is to be held back, 0 within its quota."""
        with self._lock:
            entity, limit = self._limit_of(kind, user, client_id)
            if limit >= NO_LIMIT:
                return 0
            now = self._clock()
            rate = self._rates.get((kind, entity))
            if rate is None:
                self._make_room(now)
                rate = self._rates[kind, entity] = _Rate(self._samples, self._window_s)
            per_second, span_s = rate.record(size_bytes, now)
        if per_second <= limit:
            return 0
        return round((per_second - limit) / limit * span_s * 1000)

    def _make_room(self, now: float) -> None:
        if len(self._rates) >= self._most_rates:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_over(now)}
            self._most_rates = max(_FEW_RATES, 2 * len(self._rates))  # not all looked at for each that comes

    def _limit_of(self, kind: str, name: str, client_id: str) -> tuple[Entity, float]:
        for user, client, shares in (
            (name, client_id, Entity(name, client_id)),
            (name, _ANY, Entity(name, client_id)),
            (name, None, Entity(name, None)),
            (_ANY, client_id, Entity(name, client_id)),
            (_ANY, _ANY, Entity(name, client_id)),
            (_ANY, None, Entity(name, None)),
            (None, client_id, Entity(None, client_id)),
            (None, _ANY, Entity(None, client_id)),
        ):
            limit = self._limits.get(Entity(user, client), {}).get(kind)
            if limit is not None:
                return shares, limit
        return Entity(None, client_id), self._defaults[kind]
