"""What all parts of the tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run: a red test is red again when it is looked into. No deadline, as
# the machine may be busy; the time-out of pytest still holds.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")
