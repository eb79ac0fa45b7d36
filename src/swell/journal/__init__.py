"""The durable log: append-only segments with group commit, snapshots, torn tails told from rot."""

from swell.journal.journal import Journal, Recovered

__all__ = ["Journal", "Recovered"]
