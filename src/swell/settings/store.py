"""Settings of the replicated store."""

from __future__ import annotations

import msgspec


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
