"""Delivery of configurations, at the primary (docs/protocols/delivery.md)."""
