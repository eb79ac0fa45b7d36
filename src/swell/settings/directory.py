"""Settings of the directory and its Raft group."""

from __future__ import annotations

import msgspec


class RaftSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class DirectorySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
