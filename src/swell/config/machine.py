"""One slot's part of the configurations: a state machine of the store (RIP-1 … RIP-6, RIP-19).

It applies what the primary has resolved and nothing that a library could see differently: every
replica comes to the same bytes. A refusal leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from swell.config import images
from swell.config import operations as ops
from swell.config.application import Application
from swell.config.configuration import Configuration, NotKeptError
from swell.config.content import Content
from swell.config.edits import WHOLE_BYTES_MAX, UnresolvableError
from swell.config.names import INSTANCES, check_application
from swell.config.operations import BadOperationError, Operation
from swell.config.uploads import Uploads
from swell.store.state import NotExecutedError

_encode = msgspec.msgpack.Encoder().encode
_NIL = _encode(None)


class ConfigMachine:
    """The applications of one slot."""

    __slots__ = (
        "_applications", "_operations", "changed", "changes", "service_changes",
        "services", "uploads",
    )  # fmt: skip

    def __init__(self) -> None:
        self._applications: dict[str, Application] = {}
        self.uploads = Uploads()
        self.changed: dict[str, None] = {}
        """Applications in the order of their last steps."""
        self.changes = 0
        """Grows with every step: followers look at the last so many of `changed`."""
        self.services: dict[str, None] = {}
        """Applications that have instances, or had, in the order of their last changes."""
        self.service_changes = 0
        """Grows with every change of a service: its followers look at the last so many."""
        self._operations: dict[type, Callable[[Any], bytes]] = {
            ops.Step: self._step,
            ops.Refuse: self._refuse,
            ops.Stage: self._stage,
            ops.SetOptions: self._set_options,
            ops.Publish: _unresolved,
            ops.Get: self._get,
            ops.ReadRange: self._read,
            ops.GetLeaves: self._leaves,
            ops.ListNames: self._list,
            ops.GetHistory: self._history,
            ops.ListApplications: self._list_applications,
        }

    def application(self, name: str) -> Application | None:
        return self._applications.get(name)

    def applications(self) -> Iterable[Application]:
        """In the order of their names."""
        return [self._applications[name] for name in sorted(self._applications)]

    def content_at(self, application: str, name: str, version: int) -> Content | None:
        """The content at a version that is kept, None if that is a deletion; `NotKeptError`."""
        return self._existing(application, name).content_at(version)

    # Machine.

    def apply(self, body: bytes) -> bytes:
        request = ops.decode(body)
        if body[0] >= Operation.GET:
            raise BadOperationError("it changes nothing: send it as a query")
        return self._operations[type(request)](request)

    def query(self, body: bytes) -> bytes:
        request = ops.decode(body)
        if body[0] < Operation.GET:
            raise BadOperationError("it changes something: send it as a command")
        return self._operations[type(request)](request)

    def dump(self) -> bytes:
        return b"".join(self.dump_parts())

    def dump_parts(self) -> list[bytes]:
        return images.dump(self._applications, self.uploads)

    def load(self, data: bytes) -> None:
        """Become what was dumped; `WireError`, and nothing changed, if it is no dump."""
        self._applications, self.uploads = images.load(data)
        self.changed = dict.fromkeys(self._applications)
        self.changes += len(self.changed)
        self.services = {
            item.name: None for item in self.applications() if INSTANCES in item.configurations
        }

    # Commands.

    def _step(self, step: ops.Step) -> bytes:
        name = step.application
        application = self._applications.get(name)
        if application is None:
            application = Application(check_application(name, reserved=True))
        published = application.apply(
            step.edits, step.author, step.wall_us, self.uploads, step.keep_versions
        )
        if application.step:
            self._applications[name] = application
            self.changed.pop(name, None)
            self.changed[name] = None
            self.changes += 1
        edited = any([edit.name == INSTANCES for edit in step.edits])
        if edited and INSTANCES in application.configurations:
            self._note_service(name)
        return _encode(published)

    def _refuse(self, refuse: ops.Refuse) -> bytes:
        application = self._applications.get(refuse.application)
        if application is None:
            application = Application(refuse.application)
        for name, base in refuse.bases:
            application.check_base(name, base)
        raise UnresolvableError(refuse.sentence)

    def _note_service(self, name: str) -> None:
        self.services.pop(name, None)
        self.services[name] = None
        self.service_changes += 1

    def _stage(self, stage: ops.Stage) -> bytes:
        application = check_application(stage.application, reserved=True)
        return _encode(
            self.uploads.stage(application, stage.upload, stage.offset, stage.data, stage.wall_us)
        )

    def _set_options(self, request: ops.SetOptions) -> bytes:
        name = check_application(request.application, reserved=True)
        application = self._applications.get(name)
        if application is None:
            application = self._applications[name] = Application(name)
        options = application.options
        relaying, kept, protect = request.relaying, request.versions_kept, request.protect
        application.options = ops.Options(
            options.relaying if relaying is None else relaying,
            options.versions_kept if kept is None else kept,
            options.protect if protect is None else protect,
        )
        if name in self.services:
            self._note_service(name)
        if kept:
            for item in application.configurations.values():
                item.history.trim(kept, item.history.size)
        return _encode(application.options)

    # Queries.

    def _find(self, application: str, name: str) -> Configuration | None:
        found = self._applications.get(application)
        return found.configurations.get(name) if found is not None else None

    def _existing(self, application: str, name: str) -> Configuration:
        configuration = self._find(application, name)
        if configuration is None:
            raise NotKeptError(f"application {application} has no configuration {name}")
        return configuration

    def _content(self, application: str, name: str, version: int) -> Content:
        content = self.content_at(application, name, version)
        if content is None:
            raise NotKeptError(f"version {version} of {name} of {application} is a deletion")
        return content

    def _get(self, get: ops.Get) -> bytes:
        configuration = self._find(get.application, get.name)
        if configuration is None:
            return _NIL
        past = configuration.at(get.version or configuration.present.version)
        content = configuration.content_at(past.version)
        fits = get.data and content is not None and len(content) <= WHOLE_BYTES_MAX
        return _encode(
            ops.Got(
                past.version,
                past.id,
                past.step,
                past.length,
                content.digest if content is not None else b"",
                past.author,
                past.wall_us,
                content is None,
                content.bytes() if fits and content is not None else None,
            )
        )

    def _read(self, read: ops.ReadRange) -> bytes:
        content = self._content(read.application, read.name, read.version)
        return content.read(read.offset, read.length)

    def _leaves(self, get: ops.GetLeaves) -> bytes:
        content = self._content(get.application, get.name, get.version)
        end = get.start + ops.LEAVES_MAX
        page = list(islice(content.chunk_ids(), get.start, end + 1))
        return _encode(ops.LeafPage(tuple(page[: ops.LEAVES_MAX]), len(page) > ops.LEAVES_MAX))

    def _list(self, get: ops.ListNames) -> bytes:
        application = self._applications.get(get.application)
        rows = []
        if application is not None:
            for name in islice(application.names(get.prefix, get.after), get.limit):
                item = application.configurations[name]
                present = item.present
                rows.append(
                    ops.Row(
                        name, present.version, present.id, present.length, item.wall_us, item.author
                    )
                )
        return _encode(rows)

    def _history(self, get: ops.GetHistory) -> bytes:
        configuration = self._existing(get.application, get.name)
        return _encode(
            [
                ops.Kept(
                    past.version, past.id, past.base, past.step, past.kind, past.change_bytes,
                    past.length, past.author, past.wall_us,
                )
                for past in configuration.history.versions
            ]
        )  # fmt: skip

    def _list_applications(self, get: ops.ListApplications) -> bytes:
        names = self.services if get.services else self._applications
        behind = (self._applications[name] for name in sorted(names) if name > get.after)
        return _encode(
            [
                ops.ApplicationRow(item.name, item.step, item.count)
                for item in islice(behind, get.limit)
            ]
        )


def _unresolved(publish: ops.Publish) -> bytes:
    raise NotExecutedError("the primary of the slot has not resolved it: send it again")
