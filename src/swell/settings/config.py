"""Settings of configurations, services and their delivery."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ConfigSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configurations and their delivery. Switches turn one mechanism off each, for comparisons."""

    relay_fanout: int = 60
    """Containers behind one relay. More makes fewer relays and more work for each (Ripple 4.3)."""

    server_fanout: int = 64
    """Relays of one feed that the primary serves itself; with more, relays pass on to relays."""

    relaying: bool = True
    """Switch: off, every container is served by the primary directly."""

    incremental: bool = True
    """Switch: off, every update carries the whole value."""

    adaptive: bool = True
    """Switch: off, relays are picked by name instead of by score."""

    list_digests: bool = True
    """Switch: off, every burst takes its destination lists along."""

    bursts_open: int = 2
    """Bursts of one feed without receipts. More fills long links better and batches less."""

    burst_gap_s: float = 0.07
    """Between two bursts of one feed while the node's machine is busy; a burst of many steps leaves
    sooner. Longer saves processor time of nodes and containers; 0: every update leaves at once."""

    burst_bytes_max: int = 256 * 1024
    """A burst ends with the step that takes it above this; longer values are fetched by range."""

    receipt_wait_s: float = 1.0
    """A relay waits at least that long for its children's receipts, the primary twice as long.
    Above the slowest usual round trip plus sync; shorter names the silent sooner."""

    receipt_wait_s_max: float = 8.0
    """... and at most that long where receipts were slow lately. A relay that died without a word
    is found within twice this time."""

    retries: int = 3
    """Further ways tried for a container before it is named as failed."""

    hold_bursts: int = 64
    """Bursts that came too early and wait for the gap before them, per feed."""

    repair_s: float = 1.0
    """A gap that stays open that long is asked for at the primary."""

    renew_s: float = 10.0
    """How often a container says what it has. Costs two small frames each time."""

    offline_s: float = 600.0
    """A container whose link ended, or that did not come to a new primary, is listed as offline
    for that long, then forgotten."""

    avoid_s: float = 60.0
    """A relay that failed or lied is not picked for that long."""

    score_s: float = 5.0
    """Scores are measured over this period and ride on a receipt once per period."""

    keep_versions: int = 64
    """Versions of a configuration kept as deltas, for diff, rollback and late containers."""

    value_bytes_max: int = 128 * 1024 * 1024
    """Longest value of a configuration."""

    subscriptions_max: int = 4096
    """Feeds that one container may subscribe to on one link."""

    follow_s: float = 5.0
    """How often a node looks for recommended values of `FOLLOWED` (`swell.config.thresholds`).
    Costs one small query each time; 0: never, its own settings hold."""


class Bounds(NamedTuple):
    """What a followed value may be, both included."""

    least: int
    most: int


FOLLOWED: dict[str, Bounds | None] = {
    "relay_fanout": Bounds(2, 256),
    "server_fanout": Bounds(1, 4096),
    "relaying": None,
    "keep_versions": Bounds(1, 1024),
    "burst_bytes_max": Bounds(64 * 1024, 1024 * 1024),
}
"""Settings of `ConfigSettings` that can change while a node runs; None: a switch."""


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Health checks of services' instances."""

    check_interval_s: float = 5.0
    """How often an instance is probed by TCP or HTTP. Shorter finds failures sooner and costs the
    instance one connection each time."""

    check_timeout_s: float = 2.0
    """A probe without an answer by then has failed."""

    failures: int = 3
    """So many failed probes in a row make an instance unhealthy."""

    successes: int = 2
    """... and so many good ones healthy again. More than one: no flapping."""
