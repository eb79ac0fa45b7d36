"""Every setting, its default, what it means and what changing it costs.

Presets are given once in full (`Settings()`, for a data centre) and as differences
(`Settings.wide_area()`, `Settings.local()`). Times are seconds unless the name says otherwise.
"""

from __future__ import annotations

import math

import msgspec


class MembershipSettings(msgspec.Struct, frozen=True):
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


class CoordinateSettings(msgspec.Struct, frozen=True):
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


class OverlaySettings(msgspec.Struct, frozen=True):
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


class RaftSettings(msgspec.Struct, frozen=True):
    """The directory's replicated log. All voters should run with the same ones. Time is counted in
    ticks of the running process: one that was paused does not find its leader overdue when it
    resumes."""

    tick_s: float = 0.1
    """Length of a tick."""

    heartbeat_ticks: int = 1
    """A leader is heard at least that often. Costs two small frames per follower."""

    election_ticks: int = 10
    """A follower that heard nothing for between once and twice this time, at random, asks for an
    election; a leader that heard no quorum for this time steps down. Well above the heartbeat
    plus the slowest usual sync: a false alarm costs a pre-vote, a late one costs availability."""

    append_bytes_max: int = 256 * 1024
    append_entries_max: int = 512
    """Entries of one `Append` frame, at most; at least one entry is always sent."""

    inflight_max: int = 8
    """`Append` frames on their way to one follower, at most."""

    command_bytes_max: int = 1024 * 1024
    """Longest command. Must leave room in a frame."""

    proposals_max: int = 4096
    """Proposals without an outcome at the leader; more are refused as busy."""

    reads_max: int = 4096
    """Reads that wait for their index; more are refused as busy."""

    snapshot_entries: int = 10_000
    snapshot_bytes: int = 8 * 1024 * 1024
    """A snapshot is taken when so many entries, or bytes of them, were applied since the last."""

    keep_entries: int = 1_000
    """Entries kept in memory behind a snapshot, so that a follower slightly behind needs none."""

    chunk_bytes: int = 256 * 1024
    """Snapshots travel in chunks of this size, each acknowledged before the next."""

    snapshot_bytes_max: int = 128 * 1024 * 1024
    """A longer snapshot is refused by its receiver."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ticks < self.election_ticks


class DirectorySettings(msgspec.Struct, frozen=True):
    """The directory: who belongs to the cluster."""

    sweep_interval_s: float = 1.0
    """How often silent nodes are looked for."""

    silent_reports: int = 4
    """A node that no report has named for this many report intervals is down."""

    forget_after_s: float = 24 * 3600.0
    """A node that has been down that long is forgotten; its name may be used again."""

    retire_after_s: float = 60.0
    """A zone that stays at a quarter of its size or below for that long is given up: its members
    move to the other zones of its site, if those have room."""

    raft: RaftSettings = RaftSettings()


class StoreSettings(msgspec.Struct, frozen=True):
    """The replicated store. The first three are fixed when a cluster is created."""

    slots: int = 256
    """Units of replication. More spread load and moves more finely; each costs a record in the
    directory and a few KiB in its members. 0: the cluster has no store."""

    replicas: int = 3
    """Copies of every slot: primary, zone successor, lateral replica in another zone."""

    min_replicas: int = 2
    """No epoch with fewer members is ever activated: below it writes stop. 1 only for clusters of
    one node."""

    beat_interval_s: float = 0.25
    """A primary's node asks for leases that often. Costs two small frames per pair of nodes."""

    lease_s: float = 1.0
    """How long a primary may serve reads after its last successful beat."""

    lease_drift: float = 1.1
    """The grantor waits this factor longer than the holder: bounds the drift of clocks."""

    silence_s: float = 1.0
    """T: a backup that was silent that long is left out; a primary that was silent for twice as
    long is replaced. Shorter fails over sooner and more often without need."""

    seal_wait_s: float = 0.5
    """A candidate that has enough answers waits no longer for the others."""

    copies_max: int = 2
    """Slots that one node copies to learners at one time."""

    copy_chunk_bytes: int = 256 * 1024

    inflight_max: int = 1024
    """Commands under way per slot; more are refused as busy."""

    keep_entries: int = 128
    """Committed entries kept in memory, for members that were away for a moment."""

    journal_bytes_max: int = 64 * 1024 * 1024
    """The slots are written to their snapshot files, one after the other, when the journal is
    longer than this and than their states together."""

    scrub_interval_s: float = 3600.0
    """How often everything on the disk is read and verified. What rotted is found before it is
    needed; the node then halts, and gets it from the other members when it is started again."""

    sessions_max: int = 4096
    """Client sessions that a slot remembers; the oldest are expired first."""

    session_s: float = 2 * 3600.0
    """A session that was opened longer ago is expired. Clients begin a new one well before."""


class ConfigSettings(msgspec.Struct, frozen=True):
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


class ServiceSettings(msgspec.Struct, frozen=True):
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


class EventSettings(msgspec.Struct, frozen=True):
    """Files of API events, for the pipeline."""

    directory: str = ""
    """Where they are written; empty: nowhere. Several processes may share one."""

    file_bytes_max: int = 64 * 1024 * 1024
    """A file is complete, and can be read, when it is that long ..."""

    file_age_s: float = 60.0
    """... or that old: a kill costs at most the rows of this time. Shorter makes them readable
    sooner, and more and smaller files."""

    queue_events_max: int = 131_072
    """Events that wait while the disk is slow, about 300 bytes each; beyond it they are dropped
    and counted."""

    retry_s: float = 5.0
    """After a failed write (disk full, no permission) events are dropped, and counted, for that
    long before the next attempt."""


class Settings(msgspec.Struct, frozen=True):
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
