"""The replicated store: slots, their logs, and who keeps them (docs/protocols/replication.md)."""
