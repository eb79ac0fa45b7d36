"""Settings of the event log."""

from __future__ import annotations

import msgspec


class EventSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files of API events, for the pipeline."""

    directory: str = ""
    """Where they are written; empty: nowhere. Several processes may share one."""

    file_bytes_max: int = 64 * 1024 * 1024
    """A file is complete, and can be read, when it is that long ..."""

    file_age_s: float = 60.0
    """... or that old: a kill costs at most the rows of this time and of ten seconds more. Shorter
    makes them readable sooner, and more and smaller files."""

    queue_events_max: int = 131_072
    """Events that wait while the disk is slow, about 300 bytes each; beyond it they are dropped
    and counted."""

    retry_s: float = 5.0
    """After a failed write (disk full, no permission) events are dropped, and counted, for that
    long before the next attempt."""
