"""What a health check has found out about one instance.

A *session* check hears of a lease and judges by silence: `ttl_s` makes unhealthy, twice as much
gone. *tcp* and *http* checks judge by results in a row, and never remove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from swell.services.instances import SESSION, Instance
from swell.settings import ServiceSettings

if TYPE_CHECKING:
    from swell.services.watching import Service

GONE_FACTOR = 2.0
"""So many times `ttl_s` of silence remove an instance."""


class Subject:
    """One instance under check, as long as it is the same registration."""

    __slots__ = (
        "_row", "_settings", "gone", "healthy", "heard_at", "instance", "service", "watched",
    )  # fmt: skip

    def __init__(
        self, service: Service, instance: Instance, settings: ServiceSettings, now: float
    ) -> None:
        """`now`: silence counts from here on, whatever was before."""
        self.service = service
        self.instance = instance
        """As the list has it."""
        self.healthy = instance.healthy
        """As the checks see it."""
        self.gone = False
        self.heard_at = now
        self.watched = True
        """Not any more once another registration has taken its place."""
        self._settings = settings
        self._row = 0
        """Results in a row that speak against `healthy`."""

    @property
    def is_news(self) -> bool:
        """Whether the list has to be changed."""
        return self.gone or self.healthy != self.instance.healthy

    @property
    def is_probed(self) -> bool:
        return self.instance.is_probed

    # Leases.

    def hear(self, now: float) -> None:
        """Its lease was named."""
        self.heard_at = now
        if self.instance.check == SESSION:
            self.healthy, self.gone = True, False

    def judge(self, now: float) -> float:
        """See how long it has been silent; when to look again, unless it is heard. Silence never
        makes healthy: a new primary finds it as the last one left it."""
        ttl_s = self.instance.ttl_s
        unhealthy_at, gone_at = self.heard_at + ttl_s, self.heard_at + GONE_FACTOR * ttl_s
        if now < unhealthy_at:
            return unhealthy_at
        self.healthy = False
        if now < gone_at:
            return gone_at
        self.gone = True
        return now + ttl_s

    # Probes.

    def probed(self, good: bool) -> None:
        if good == self.healthy:
            self._row = 0
            return
        self._row += 1
        if self._row >= (self._settings.successes if good else self._settings.failures):
            self.healthy = good
            self._row = 0
