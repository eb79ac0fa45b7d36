"""How loaded a server or container is, in one number (RIP-20; Ripple 3.6, 4.5).

score = N_req · P_avg · L_avg / (F_cpu · F_mem · F_net)

over a period: updates processed, their mean payload and mean processing time, and what is free of
the machine. Every factor has a small positive floor, so that an idle container has the smallest
score, less free resources a larger one, and none is 0 or divided by 0. Ties go by name.
"""

from __future__ import annotations

from swell.world import Resources

REQUESTS_MIN = 1.0
PAYLOAD_BYTES_MIN = 1.0
LATENCY_S_MIN = 1e-6
FREE_MIN = 0.01


def score(requests: float, payload_bytes: float, latency_s: float, resources: Resources) -> float:
    """`requests`: processed in the period; the others are means over them."""
    load = (
        max(requests, REQUESTS_MIN)
        * max(payload_bytes, PAYLOAD_BYTES_MIN)
        * max(latency_s, LATENCY_S_MIN)
    )
    free = 1.0
    for fraction in resources:
        free *= min(max(fraction, FREE_MIN), 1.0)
    return load / free
