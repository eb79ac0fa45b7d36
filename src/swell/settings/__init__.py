"""Every setting, its default, what it means and what changing it costs.

Presets are given once in full (`Settings()`, for a data centre) and as differences
(`Settings.wide_area()`, `Settings.local()`). Times are seconds unless the name says otherwise.
"""

from __future__ import annotations

import msgspec

from swell.settings.config import FOLLOWED, Bounds, ConfigSettings, ServiceSettings
from swell.settings.directory import DirectorySettings, RaftSettings
from swell.settings.events import EventSettings
from swell.settings.overlay import CoordinateSettings, MembershipSettings, OverlaySettings
from swell.settings.store import StoreSettings

__all__ = [
    "FOLLOWED",
    "Bounds",
    "ConfigSettings",
    "CoordinateSettings",
    "DirectorySettings",
    "EventSettings",
    "MembershipSettings",
    "OverlaySettings",
    "RaftSettings",
    "ServiceSettings",
    "Settings",
    "StoreSettings",
]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of one node. Every node of a cluster should run with the same ones."""

    membership: MembershipSettings = MembershipSettings()
    coordinates: CoordinateSettings = CoordinateSettings()
    overlay: OverlaySettings = OverlaySettings()
    directory: DirectorySettings = DirectorySettings()
    store: StoreSettings = StoreSettings()
    config: ConfigSettings = ConfigSettings()
    services: ServiceSettings = ServiceSettings()
    events: EventSettings = EventSettings()
    request_timeout_s: float = 5.0
    """Default deadline of a request to another node."""

    def with_replicas(self, replicas: int) -> Settings:
        """The same with so many copies of every slot, for clusters of fewer nodes."""
        min_replicas = min(self.store.min_replicas, replicas)
        store = msgspec.structs.replace(self.store, replicas=replicas, min_replicas=min_replicas)
        return msgspec.structs.replace(self, store=store)

    def recorded_in(self, directory: str) -> Settings:
        """The same with files of events in a directory; empty: as it is."""
        if not directory:
            return self
        events = msgspec.structs.replace(self.events, directory=directory)
        return msgspec.structs.replace(self, events=events)

    @classmethod
    def wide_area(cls) -> Settings:
        """Zones that span sites with tens of milliseconds between them."""
        return cls(
            membership=MembershipSettings(
                probe_interval_s=5.0,
                probe_timeout_s=3.0,
                gossip_interval_s=0.5,
                gossip_fanout=4,
                push_pull_interval_s=60.0,
                suspicion_multiplier=6,
                dead_linger_s=60.0,
            )
        )

    @classmethod
    def local(cls, connections: int = 4) -> Settings:
        """Many nodes on one machine for trying things out: small zones, fast reactions."""
        return cls(
            membership=MembershipSettings(
                probe_interval_s=0.5,
                probe_timeout_s=0.25,
                gossip_interval_s=0.1,
                push_pull_interval_s=10.0,
                suspicion_multiplier=3,
                suspicion_max_factor=3,
                dead_linger_s=10.0,
            ),
            overlay=OverlaySettings(
                connections=connections,
                rebalance_interval_s=1.0,
                candidate_window_s=1.0,
                recovery_interval_s=1.0,
                report_interval_s=1.0,
                link_silence_s=4.0,
            ),
            directory=DirectorySettings(
                raft=RaftSettings(tick_s=0.05, heartbeat_ticks=2, election_ticks=15)
            ),
            services=ServiceSettings(check_interval_s=1.0, check_timeout_s=0.5),
        )
