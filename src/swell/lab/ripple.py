"""Ripple's default load (paper, section 5.1): 10 servers, 500 containers, 1,000 updates per second.

The paper ran it on ten servers of two processors each; here servers, containers and the publisher
share one machine, so latency includes their waiting for each other's turns.
"""

from __future__ import annotations

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.ripple_run import Outcome, RippleSettings, ripple_run

SUMMARY = "Ripple's default load: 10 servers, 500 containers, 1,000 updates per second of 10 KB"

MEAN_MS_MAX = 70.0
"""The paper's best mean."""
QUICK_S = 8.0


def run(lab: Lab) -> Report:
    settings = RippleSettings(seconds=QUICK_S) if lab.quick else RippleSettings()
    with lab.progress("ripple", 1) as advance:
        outcome = ripple_run(settings)
        advance()
    return Report(
        settings={
            "servers": settings.servers,
            "server_processes": settings.server_processes,
            "containers": settings.containers,
            "applications": settings.applications,
            "updates_per_s": settings.rate_per_s,
            "payload_bytes": settings.payload_bytes,
            "incremental": settings.incremental,
            "seconds": settings.seconds,
        },
        rows=[
            {
                "process": number,
                "cpu": server.cpu,
                "sent_mib": None
                if server.sent_bytes is None
                else round(server.sent_bytes / 2**20, 1),
                "resident_mib": server.resident_mib,
            }
            for number, server in enumerate(outcome.servers)
        ],
        headline=headline(outcome),
        bars=bars(outcome),
        notes=[*NOTES, *(f"{count} × {reason}" for reason, count in outcome.refused.items())],
    )


def headline(outcome: Outcome) -> dict[str, int | float]:
    found: dict[str, int | float] = {
        "updates stored": outcome.updates,
        "deliveries": outcome.deliveries,
        "mean in ms": round(outcome.mean_ms, 2),
        "p50 in ms": round(outcome.p50_ms, 2),
        "p99 in ms": round(outcome.p99_ms, 2),
        "longest in ms": round(outcome.max_ms, 1),
        "cores, all servers": round(outcome.servers_cpu, 3),
        "cores, containers and publisher": round(outcome.containers_cpu, 3),
        "cores, everything else": round(outcome.others_cpu, 3),
        "KiB of memory by container": round(outcome.container_kib, 1),
    }
    if outcome.bytes_per_update is not None:
        found["KiB sent per update, all servers"] = round(outcome.bytes_per_update / 1024, 2)
    return found


def bars(outcome: Outcome) -> list[Bar]:
    return [
        Bar.at_most("updates that were refused", 0, sum(outcome.refused.values())),
        Bar.at_most("updates lost, by container", 0, outcome.lost),
        Bar.at_most("updates applied out of order", 0, outcome.out_of_order),
        Bar.at_most("containers with other documents than their siblings", 0, outcome.differing),
        Bar.at_most("applications without all receipts", 0, len(outcome.unreported)),
        Bar.at_most(
            "mean latency in ms (the paper's best)", MEAN_MS_MAX, round(outcome.mean_ms, 2)
        ),
    ]


NOTES = (
    "latency: of a delivery, from the instant when its update was due (open loop) until one "
    "container has applied it; updates of the warm-up are left out",
    "cpu: of each node's process while it was measured; sent: in the whole run, the payload of all "
    "its TCP connections, to containers and to other nodes",
    "if everything else on the machine used much of it, run this again",
)
