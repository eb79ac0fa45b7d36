"""Settings of membership, coordinates and the links between zones."""

from __future__ import annotations

import math

import msgspec


class MembershipSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """SWIM with Lifeguard inside one zone."""

    probe_interval_s: float = 1.0
    """One member is probed per interval. Shorter finds failures sooner and costs two small frames
    per node and interval."""

    probe_timeout_s: float = 0.5
    """How long a direct probe may take before members are asked to probe indirectly. Must be
    above the zone's 99th percentile round trip and below the interval."""

    indirect_probes: int = 3
    """How many members are asked to probe a silent one."""

    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    """Rumours that no probe has carried yet leave in frames of their own at this rate."""

    retransmit_multiplier: int = 4
    """A rumour is passed on multiplier · ⌈log10(n+1)⌉ times by each member."""

    push_pull_interval_s: float = 30.0
    """Whole-view exchange with one random member: repairs whatever gossip missed. Above 32
    members the interval grows by ⌈log2 n − 5⌉ + 1."""

    suspicion_multiplier: int = 4
    """Suspicion lasts at least multiplier · max(1, log10 n) · probe_interval_s."""

    suspicion_max_factor: int = 6
    """... and at most this many times the minimum, when nobody confirms it."""

    awareness_max: int = 8
    """Highest local health score; probe interval and time-out grow with (score + 1)."""

    lag_tolerance_s: float = 0.25
    """A timer that fires later than this means that *we* were stalled: the health score rises
    and no verdict on others is passed before their frames have been read."""

    dead_linger_s: float = 30.0
    """A dead member stays in the view that long, so that late rumours meet it; then it is
    forgotten entirely."""

    frame_bytes_max: int = 1400
    """Piggybacked rumours fill a frame up to this size."""

    def suspicion_min_s(self, members: int) -> float:
        """Shortest suspicion: time for the suspect to hear of it and to answer."""
        return (
            self.suspicion_multiplier
            * max(1.0, math.log10(max(1, members)))
            * self.probe_interval_s
        )

    def detection_bound_s(self, members: int) -> float:
        """Within this time every real death is known to all members: each member is probed once
        per two rounds by everybody, then the longest suspicion, then the spread of the news."""
        rounds = 2 * max(1, members - 1) * self.probe_interval_s
        spread = 4 * self.gossip_interval_s * math.ceil(math.log2(members + 1))
        return rounds + self.suspicion_max_factor * self.suspicion_min_s(members) + spread


class CoordinateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Vivaldi network coordinates with height, in seconds."""

    dimensions: int = 8
    error_max: float = 1.5
    """Confidence of a node that knows nothing yet."""
    error_gain: float = 0.25
    """CE: how fast the error estimate follows new samples."""
    force_gain: float = 0.25
    """CC: how far one sample moves the coordinate."""
    adjustment_window: int = 20
    """Samples behind the additive adjustment; 0 turns it off."""
    height_min_s: float = 10e-6
    latency_filter_size: int = 3
    """Median over the last samples of each peer: one late sample moves nothing."""
    gravity_rho: float = 150.0
    """Pulls the whole system towards the origin so that it does not drift; larger is weaker."""
    rtt_max_s: float = 10.0
    """Samples outside (0, rtt_max_s] are refused."""


class OverlaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """THOR: zones as cliques, and a complete graph of zones."""

    connections: int = 20
    """c: links per node in a full overlay. The overlay then holds (c−i+1)(i(c−i+1)+1) nodes, with
    i = ⌊(c+1)/3⌋ links of each node between zones: 200 at 10, 1,386 at 20, 10,220 at 40."""

    assignment: str = "arrival"
    """How nodes of one site are spread over its zones: `arrival` (first come first served),
    `rack-local` (a zone's members share racks: bandwidth) or `rack-spread` (distinct racks:
    availability)."""

    arrival_quiet_s: float = 0.5
    arrival_window_s: float = 3.0
    """Joins that arrive together are planned as one batch: until none came for the quiet time,
    at most the window."""

    candidates: int = 4
    """k: members of another zone whose load is asked for before a link is opened."""

    candidate_window_s: float = 3.0
    """How long their answers are waited for, if not all of them come sooner. Dialling and asking
    takes about four round trips: on the far side of the world more than a second."""

    rebalance_interval_s: float = 2.0
    """How often a node looks for imbalance in its zone; jittered by a quarter."""

    recovery_interval_s: float = 2.0
    """How often a node looks for zones that its own zone has lost; jittered by a quarter."""

    recovery_wait_s: float = 0.3
    """How long a recovery waits for claims of higher priority."""

    lease_s: float = 10.0
    """Longest life of a lease, of rebalancing and of recovery alike."""

    link_probe_interval_s: float = 1.0
    link_silence_s: float = 5.0
    """A link between zones on which nothing was heard for that long is closed."""

    dial_retry_s: float = 1.0
    """A missing clique link is dialled again at this rate, jittered."""

    report_interval_s: float = 5.0
    """How often a zone's delegate tells the directory who is alive."""

    duplicate_window: int = 4096
    """Sequences remembered per source to suppress duplicates."""

    detour_tries: int = 3
    """Intermediate zones tried for one message before it is dropped and counted."""

    slice_size: int = 4
    """Nodes per zone slice on the upper ring: a zone of n nodes has ⌈n / slice_size⌉ slices. At
    most the smallest usual zone."""

    ring_points: int = 64
    """Points per slice on the upper ring, and per node on the zone's ring."""

    @property
    def links_between_zones(self) -> int:
        """i = ⌊(c+1)/3⌋."""
        return (self.connections + 1) // 3

    @property
    def zone_size(self) -> int:
        """The optimal number of nodes in a zone, c − i + 1."""
        return self.connections - self.links_between_zones + 1
