"""What may be set in an audit; every rule takes these and nothing else from outside the log."""

from __future__ import annotations

from dataclasses import dataclass

US_PER_S = 1_000_000

NEVER_US = 1 << 62
"""Later than any time; its negative, earlier."""


@dataclass(frozen=True)
class AuditSettings:
    """`docs/protocols/audit.md` says what each of them means for the verdicts."""

    sla_s: float = 3.0
    """A delivery that takes longer is late; whoever leaves within it owes nothing."""

    horizon_s: float | None = None
    """What has not come by then is missing; None: what never came. A stream needs one."""

    settle_s: float = 10.0
    """How long "eventually" may take on the board."""

    tail_s: float = 0.0
    """The last part of the log that is not judged: as long as writers of a live system may hold
    rows back. 0 is right once they have stopped."""

    clock_bound_s: float = 60.0
    """If all deliveries of a pair seem slower, it is the clocks."""

    same_machine_ms: float = 100.0
    """Processes whose machines were started that close to each other run on one machine."""

    complete: bool = True
    """The log begins with the cluster: version 1 and step 1 of everything are in it."""

    @property
    def sla_us(self) -> int:
        return round(self.sla_s * US_PER_S)

    @property
    def horizon_us(self) -> int:
        return NEVER_US if self.horizon_s is None else round(self.horizon_s * US_PER_S)

    @property
    def settle_us(self) -> int:
        return round(self.settle_s * US_PER_S)

    @property
    def tail_us(self) -> int:
        return round(self.tail_s * US_PER_S)

    @property
    def clock_bound_us(self) -> int:
        return round(self.clock_bound_s * US_PER_S)

    @property
    def same_machine_us(self) -> int:
        return round(self.same_machine_ms * 1000)
