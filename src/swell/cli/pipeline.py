"""`swell pipeline`: the jobs of `swell.pipeline.commands`, and those that need the laboratory."""

from __future__ import annotations

from swell.cli.pipeline_thor import hashing, resilience
from swell.pipeline.commands import app as app

app.command("thor-resilience")(resilience)
app.command("thor-hashing")(hashing)
