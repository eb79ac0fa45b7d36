"""What one run of a workload found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Result:
    """One seed: problems (empty if it passed), what happened, and the digest that replays it."""

    workload: str
    seed: int
    problems: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    digest: str = ""
    virtual_s: float = 0.0
    events: int = 0
    plan: str = ""

    @property
    def passed(self) -> bool:
        return not self.problems

    def require(self, what: str, minimum: float) -> None:
        """A run in which too little happened proves nothing: it fails as vacuous."""
        if self.counts.get(what, 0) < minimum:
            self.problems.append(
                f"vacuous: {what} is {self.counts.get(what, 0):g}, at least {minimum:g} needed"
            )
