"""Swell pushes configuration, service state and messages to every container of a fleet.

At most three hops, only what changed, and proof of who has it.
"""

__version__ = "0.1.0"
