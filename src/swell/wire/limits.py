"""Limits on everything a peer may send. Constants, not settings: both sides must agree."""

MAGIC = b"SWELL\x001\n"
"""First bytes of every connection, in both directions; carries the wire version."""

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Longest frame behind its length word. Larger values travel in chunks."""

FIRST_FRAME_S_MAX = 5.0
"""A connection whose first whole frame is not there by then is closed (slow-loris guard)."""

HANDSHAKE_S_MAX = 5.0
"""TCP connect and TLS handshake, each."""

QUEUE_BYTES_MAX_DATA = 64 * 1024
"""High-water mark of the data plane per link; `send` returns False above it."""

QUEUE_BYTES_MAX_CONTROL = 1024 * 1024
"""High-water mark of the control plane per link."""
