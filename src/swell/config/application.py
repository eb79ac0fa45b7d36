"""One application: its configurations, the order of its steps, and what changed since a step.

A deletion is a version, and the names of deleted configurations are remembered, a bounded number
of them. When one is forgotten, versions of new names begin above all that were, so that no version
of a name ever stands for two things.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from swell.config.bursts import Change, StepChanges
from swell.config.configuration import Configuration, ConflictError, Next, Present, advance
from swell.config.edits import Resolved, Way
from swell.config.names import RESERVED, check_configuration
from swell.config.operations import CONFLICT, Made, Options, Published
from swell.config.recent import Recent
from swell.config.uploads import Uploads
from swell.config.versions import NO_VERSION
from swell.errors import TooLargeError
from swell.store.state import NotExecutedError

CONFIGURATIONS_MAX = 16_384
DELETED_MAX = 1024
"""Names of deleted configurations that are remembered."""

FETCHED_FROM_BYTES = 256
"""A shorter value is never left to be fetched: it is hardly longer than its digest."""


class Application:
    """What the replicas agree on about one application."""

    __slots__ = (
        "_deleted", "_names", "_recent", "configurations", "first_version", "forgotten_step",
        "name", "options", "step",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.step = 0
        self.options = Options()
        self.configurations: dict[str, Configuration] = {}
        """By name, in the order of their last changes; deleted ones too."""
        self.first_version = 0
        """The version that a new name begins after."""
        self.forgotten_step = 0
        """Step of the last deletion that is forgotten."""
        self._names: list[str] = []
        self._deleted: dict[str, None] = {}
        self._recent = Recent()

    # Reading.

    def present(self, name: str) -> Present:
        """What a configuration is now, also if it is nothing."""
        configuration = self.configurations.get(name)
        if configuration is not None:
            return configuration.present
        return Present(self.first_version, NO_VERSION, None)

    @property
    def count(self) -> int:
        """How many configurations there are, without deleted ones."""
        return len(self._names)

    def names(self, prefix: str, after: str) -> Iterator[str]:
        """Those with a prefix behind `after`, in order; reserved ones only by their prefix."""
        start = max(bisect_left(self._names, prefix), bisect_left(self._names, after))
        hidden = not prefix.startswith(RESERVED)
        for name in islice(self._names, start, None):
            if not name.startswith(prefix):
                return
            if name != after and not (hidden and name.startswith(RESERVED)):
                yield name

    # Changing.

    def apply(
        self, edits: Sequence[Resolved], author: str, wall_us: int, uploads: Uploads, keep: int
    ) -> Published:
        """One step: all edits, or an error and nothing changed."""
        made = [self._next(edit, uploads) for edit in edits]
        if len({edit.name for edit in edits}) != len(edits):
            raise ConflictError("a step changes a configuration twice: join the two changes")
        created = sum(not m.before.exists and m.after.exists for m in made)
        if created and self.count + created > CONFIGURATIONS_MAX:
            raise TooLargeError(
                f"application {self.name} has {self.count} configurations, allowed are"
                f" {CONFIGURATIONS_MAX}: delete some, or divide it"
            )
        keep = self.options.versions_kept or keep
        changes = tuple(
            self._take(edit.name, following, author, wall_us, keep)
            for edit, following in zip(edits, made, strict=True)
            if following.after is not following.before
        )
        if changes:
            self.step += 1
            self._recent.add(StepChanges(self.step, changes))
            self._forget()
        for edit in edits:
            if edit.way == Way.UPLOADED:
                uploads.drop(self.name, edit.data)
        answer = [_made(edit.name, following) for edit, following in zip(edits, made, strict=True)]
        return Published(self.step, tuple(answer))

    def _next(self, edit: Resolved, uploads: Uploads) -> Next:
        present = self.present(edit.name)
        if not present.allows(edit.condition):
            raise conflict(self.name, edit.name, present)
        if edit.base != present.id:
            raise NotExecutedError(
                f"{edit.name} of {self.name} {present.words()} and has changed meanwhile:"
                " send it again"
            )
        if edit.name not in self.configurations:
            check_configuration(edit.name, reserved=True)
        uploaded = None
        if edit.way == Way.UPLOADED:
            uploaded = uploads.finished(self.name, edit.data, edit.length, edit.digest)
        return advance(present, edit, uploaded)

    def _take(self, name: str, made: Next, author: str, wall_us: int, keep: int) -> Change:
        configuration = self.configurations.pop(name, None)
        if configuration is None:
            configuration = Configuration(name, made.before)
        self.configurations[name] = configuration
        existed, exists = made.before.exists, made.after.exists
        if exists and not existed:
            insort(self._names, name)
            self._deleted.pop(name, None)
        elif existed and not exists:
            del self._names[bisect_left(self._names, name)]
            self._deleted[name] = None
        return configuration.take(made, self.step + 1, author, wall_us, keep)

    def _forget(self) -> None:
        while len(self._deleted) > DELETED_MAX:
            name = next(iter(self._deleted))
            del self._deleted[name]
            configuration = self.configurations.pop(name)
            self.first_version = max(self.first_version, configuration.present.version)
            self.forgotten_step = max(self.forgotten_step, configuration.step)

    def restore(self, configuration: Configuration) -> None:
        """Take over a configuration that was dumped; in the order of the dump."""
        name = configuration.name
        self.configurations[name] = configuration
        if configuration.present.content is None:
            self._deleted[name] = None
        else:
            insort(self._names, name)

    # What others need.

    def since(
        self, after: int, matches: Callable[[str], bool], bytes_max: int, incremental: bool
    ) -> tuple[int, tuple[StepChanges, ...]]:
        """What somebody needs who is at step `after`: the last step that it covers, and the steps.

        The newest steps come as they were, cut at about `bytes_max`. Whoever is further behind gets
        everything up to the present step: per configuration its deltas if they are kept and
        shorter than its value, else its value in the step of its newest version; beyond
        `bytes_max` values are left to be fetched. Not `incremental`: values only, in that order,
        cut at about `bytes_max`. Then one who was given part of it has versions of its
        configurations that belong to no step: it must be served in this way until it is at the
        present step.
        """
        if after >= self.step:
            return self.step, ()
        if not incremental:
            return self._values_since(after, matches, bytes_max)
        return self._recent.since(after, matches, bytes_max) or (
            self.step,
            self._all_since(after, matches, bytes_max),
        )

    def _changed(self, after: int, matches: Callable[[str], bool]) -> list[Configuration]:
        """In the order of their last changes."""
        found = []
        for configuration in reversed(self.configurations.values()):
            if configuration.step <= after:
                break
            if matches(configuration.name):
                found.append(configuration)
        found.reverse()
        return found

    def _values_since(
        self, after: int, matches: Callable[[str], bool], bytes_max: int
    ) -> tuple[int, tuple[StepChanges, ...]]:
        steps: dict[int, list[Change]] = {}
        for configuration in self._changed(after, matches):
            if steps and bytes_max <= 0 and configuration.step not in steps:
                return next(reversed(steps)), _steps(steps)
            change = configuration.whole()
            bytes_max -= len(change.data)
            steps.setdefault(configuration.step, []).append(change)
        return self.step, _steps(steps)

    def _all_since(
        self, after: int, matches: Callable[[str], bool], bytes_max: int
    ) -> tuple[StepChanges, ...]:
        steps: dict[int, list[Change]] = {}
        for configuration in self._changed(after, matches):
            found = configuration.since(after)
            size = sum(len(change.data) for _, change in found)
            if size > bytes_max and size > FETCHED_FROM_BYTES:
                found = [(configuration.step, configuration.to_fetch())]
            else:
                bytes_max -= size
            for step, change in found:
                steps.setdefault(step, []).append(change)
        return _steps(steps)


def _steps(changes: dict[int, list[Change]]) -> tuple[StepChanges, ...]:
    return tuple(StepChanges(step, tuple(changes[step])) for step in sorted(changes))


def _made(name: str, made: Next) -> Made:
    after = made.after
    return Made(name, after.version, after.id, after.length, after is not made.before)


def conflict(application: str, name: str, present: Present) -> ConflictError:
    """What `swell.config.requests.conflict_of` reads."""
    return ConflictError(
        f"{CONFLICT}{name} of {application} {present.words()}, which is not what was expected:"
        " look at it and try again"
    )
