"""One application: its configurations, the order of its steps, and what changed since a step.

A deletion is a version, and the names of deleted configurations are remembered, a bounded number
of them. When one is forgotten, versions of new names begin above all that were, so that no version
of a name ever stands for two things; those who were away hear of it by a range of names
(`swell.config.gone`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from swell.config.bursts import Change, StepChanges
from swell.config.configuration import Configuration, ConflictError, Next, Present, advance
from swell.config.edits import Resolved, Way
from swell.config.gone import Gone
from swell.config.names import RESERVED, check_configuration
from swell.config.operations import CONFLICT, STEP_BYTES_MAX, Made, Options, Published
from swell.config.recent import Recent, weight
from swell.config.uploads import Uploads
from swell.config.versions import NO_VERSION, Kind
from swell.errors import TooLargeError
from swell.store.state import NotExecutedError

CONFIGURATIONS_MAX = 16_384
DELETED_MAX = 1024
"""Names of deleted configurations that are remembered."""

FETCHED_FROM_BYTES = 8 * 1024
"""What is longer is left to be fetched where the changes of a step make no burst: then the others
do, as many as there can be."""


class Served(NamedTuple):
    """What leads to step `upto`. `exact`: there somebody has the versions of that step. Else only
    of the configurations that did not change later: the rest must come as values."""

    upto: int
    steps: tuple[StepChanges, ...]
    exact: bool


class Application:
    """What the replicas agree on about one application."""

    __slots__ = (
        "_deleted", "_names", "_recent", "configurations", "first_version", "gone", "name",
        "options", "step",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.step = 0
        self.options = Options()
        self.configurations: dict[str, Configuration] = {}
        """By name, in the order of their last changes; deleted ones too."""
        self.first_version = 0
        """The version that a new name begins after."""
        self.gone = Gone()
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
        if len(edits) > 1 and len({edit.name for edit in edits}) != len(edits):
            raise ConflictError("a step changes a configuration twice: join the two changes")
        created = sum([not m.before.exists and m.after.exists for m in made])
        if created and self.count + created > CONFIGURATIONS_MAX:
            raise TooLargeError(
                f"application {self.name} has {self.count} configurations, allowed are"
                f" {CONFIGURATIONS_MAX}: delete some, or divide it"
            )
        keep = self.options.versions_kept or keep
        changes = tuple(
            [
                self._take(edit.name, following, author, wall_us, keep)
                for edit, following in zip(edits, made, strict=True)
                if following.after is not following.before
            ]
        )
        if changes:
            self.step += 1
            self._recent.add(StepChanges(self.step, changes))
            self._forget()
        for edit in edits:
            if edit.digest:  # An upload, also if it was the present value already.
                uploads.drop(self.name, edit.data)
        return Published(self.step, tuple([_made(one) for one in made]))

    def check_base(self, name: str, base: bytes) -> None:
        """What was resolved against another version than the present one is not executed."""
        present = self.present(name)
        if base != present.id:
            raise NotExecutedError(
                f"{name} of {self.name} {present.words()} and has changed meanwhile: send it again"
            )

    def _next(self, edit: Resolved, uploads: Uploads) -> Next:
        present = self.present(edit.name)
        if not present.allows(edit.condition):
            raise conflict(self.name, edit.name, present)
        self.check_base(edit.name, edit.base)
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
            self.gone.add(*self._around(name), configuration.step)

    def _around(self, name: str) -> tuple[str, str]:
        """The existing names before and behind one that does not exist; empty: there is none."""
        place, names = bisect_left(self._names, name), self._names
        return names[place - 1] if place else "", names[place] if place < len(names) else ""

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
    ) -> Served:
        """What somebody needs who is at step `after`.

        The newest steps come as they were, cut at about `bytes_max`. Whoever is further behind gets
        per configuration its deltas, if they are kept and shorter than its value, else its value,
        in the order of their newest versions and cut at about `bytes_max` between them. Not
        `incremental`: values only, for who may have older versions than step `after` says.
        """
        if after >= self.step:
            return Served(self.step, (), True)
        if incremental:
            recent = self._recent.since(after, matches, bytes_max)
            if recent is not None and self._can_be_had(recent[1]):
                return Served(*recent, True)
        return self._gathered(after, matches, bytes_max, incremental)

    def _can_be_had(self, steps: Sequence[StepChanges]) -> bool:
        """Whether what is left to be fetched will be there: older versions may not be kept."""
        return all(
            change.kind != Kind.FETCH or self.present(change.name).id == change.id
            for step in steps
            for change in step.changes
        )

    def changes_at(self, step: int) -> tuple[Change, ...] | None:
        """What a step has changed; None: it is not kept."""
        return self._recent.at(step)

    def touches(self, step: int, matches: Callable[[str], bool]) -> bool:
        """Whether a step has changed something that matches, as far as it is kept."""
        changes = self._recent.at(step)
        if changes is not None:
            return any(matches(change.name) for change in changes)
        return any(item.made_at(step) for item in self._changed(step - 1, matches))

    def version_made(self, name: str, step: int) -> int:
        """The version that a step made of a configuration; 0: none, or it is not kept."""
        changes = self._recent.at(step)
        if changes is not None:
            return next((change.version for change in changes if change.name == name), 0)
        configuration = self.configurations.get(name)
        return configuration.made_at(step) if configuration is not None else 0

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

    def _gathered(
        self, after: int, matches: Callable[[str], bool], bytes_max: int, incremental: bool
    ) -> Served:
        changed: dict[int, list[Configuration]] = {}
        for configuration in self._changed(after, matches):
            changed.setdefault(configuration.step, []).append(configuration)
        gone: dict[int, list[Change]] = {}
        for range_ in self.gone.since(after):
            gone.setdefault(range_.step, []).append(range_.change())
        steps: dict[int, list[Change]] = {}
        last, used = after, 0
        for number in sorted(changed.keys() | gone.keys()):
            found = [item.since(after, incremental) for item in changed.get(number, ())]
            size = sum(map(_size, found)) + sum(map(weight, gone.get(number, ())))
            if steps and used + size > bytes_max:
                return Served(last, _steps(steps), False)
            if size > STEP_BYTES_MAX:
                found = [
                    [(number, item.to_fetch())] if _size(each) > FETCHED_FROM_BYTES else each
                    for item, each in zip(changed[number], found, strict=True)
                ]
            for step, change in chain.from_iterable(found):
                steps.setdefault(step, []).append(change)
            if number in gone:
                steps.setdefault(number, []).extend(gone[number])
            last, used = number, used + size
        return Served(self.step, _steps(steps), True)


def _size(found: Sequence[tuple[int, Change]]) -> int:
    return sum([weight(change) for _, change in found])


def _steps(changes: dict[int, list[Change]]) -> tuple[StepChanges, ...]:
    return tuple(StepChanges(step, tuple(changes[step])) for step in sorted(changes))


def _made(made: Next) -> Made:
    after = made.after
    return Made(after.version, after.id, after.length, after is not made.before)


def conflict(application: str, name: str, present: Present) -> ConflictError:
    """What `swell.config.requests.conflict_of` reads."""
    return ConflictError(
        f"{CONFLICT}{name} of {application} {present.words()}, which is not what was expected:"
        " look at it and try again"
    )
