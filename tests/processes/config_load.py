"""Load on the configurations of a real cluster, and whether containers have got what was stored.

Every value is published once. Documents are long and change little, and all versions are kept, so
that whoever falls behind for a moment is brought every version, not only the newest.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from swell.cli.localcluster import LocalCluster
from swell.client import edits
from swell.client.configs import Configs
from swell.client.values import Publication
from swell.config.names import place
from swell.config.operations import VERSIONS_KEPT_MAX
from swell.config.versions import NO_VERSION
from swell.errors import OutcomeUnknownError, UnavailableError
from swell.lab.store_table import TableReader
from swell.settings import ConfigSettings
from swell.store.messages import Table
from swell.wire import codec
from swell.world import Address
from tests.processes.container_process import Begun, Heard, Line

DOCUMENTS = ("a.json", "b.json", "c.json")
TEXTS = ("d.txt", "e.txt")
PADDING = "0123456789abcdef" * 1024
DEADLINE_S = 20.0


def laid_out(path: Path, nodes: int, settings: ConfigSettings) -> LocalCluster:
    """A cluster whose nodes have these settings; nothing runs yet."""
    cluster = LocalCluster.create(path, sites=1, nodes=nodes)
    replace = msgspec.structs.replace
    specs = [
        replace(spec, settings=replace(spec.settings, config=settings))
        for spec in cluster.plan.nodes
    ]
    return LocalCluster(cluster.path, replace(cluster.plan, nodes=tuple(specs)))


class Publisher:
    """One application's updates, about `rate` in a second, until `resting`."""

    def __init__(self, configs: Configs, rate: float, rng: Random) -> None:
        self.configs = configs
        self.acknowledged: list[Publication] = []
        self.kinds: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.late_s = 0.0
        """The longest that an acknowledgement took."""
        self.resting = False
        self._period_s = 1.0 / rate
        self._rng = rng
        self._values = 0

    async def begin(self) -> None:
        await self.configs.options(versions_kept=VERSIONS_KEPT_MAX)
        padded = json.dumps({"padding": PADDING})
        made = await self.configs.publish([edits.put(name, padded) for name in DOCUMENTS])
        self.acknowledged += made

    async def run(self) -> None:
        due_s = time.monotonic()
        while not self.resting:
            await self.publish()
            due_s = max(due_s + self._period_s, time.monotonic() - 1.0)
            await asyncio.sleep(due_s - time.monotonic())

    async def publish(self) -> Publication | None:
        """One step; None if nobody knows what became of it, or if it did not happen."""
        kind = self._rng.choices(("set", "put", "batch"), (6, 3, 1))[0]
        began_s = time.monotonic()
        try:
            made = await self.configs.publish(self._edits(kind), deadline_s=DEADLINE_S)
        except (OutcomeUnknownError, UnavailableError) as error:
            self.errors[type(error).__name__] += 1
            return None
        finally:
            self.late_s = max(self.late_s, time.monotonic() - began_s)
        assert all(one.changed for one in made), made
        self.kinds[kind] += 1
        self.acknowledged += made
        return made[0]

    def _edits(self, kind: str) -> Sequence[edits.Edit]:
        rng = self._rng
        self._values += 1
        value = str(self._values)
        setting = edits.set(rng.choice(DOCUMENTS), f"key{rng.randrange(9)}", value)
        putting = edits.put(rng.choice(TEXTS), f"{PADDING}\n{value}\n{PADDING}")
        kinds: dict[str, Sequence[edits.Edit]] = {
            "set": (setting,),
            "put": (putting,),
            "batch": (setting, putting),
        }
        return kinds[kind]


class Version(NamedTuple):
    id: str
    step: int


Chain = dict[tuple[str, int], Version]
"""What each version of each name is."""


async def read_chain(configs: Configs) -> Chain:
    """As the cluster has it: every version made from the one before it, steps without gaps."""
    chain: Chain = {}
    steps: set[int] = set()
    for row in await configs.list():
        base = NO_VERSION
        kept = await configs.history(row.name)
        assert [past.version for past in kept] == [*range(1, row.version + 1)], row.name
        for past in kept:
            assert past.base == base, (row.name, past.version)
            chain[row.name, past.version] = Version(past.id.hex(), past.step)
            base = past.id
            steps.add(past.step)
    assert steps == set(range(1, max(steps) + 1))
    return chain


def newest(chain: Chain) -> dict[str, int]:
    """The last version of every name."""
    found: dict[str, int] = {}
    for name, version in chain:
        found[name] = max(version, found.get(name, 0))
    return found


class Checker:
    """Compares what containers wrote down with the chains of all applications."""

    def __init__(self, chains: dict[str, Chain]) -> None:
        self._chains = chains
        self._digests: dict[tuple[str, str, int], str] = {}
        self.heard = 0

    def check_published(self, application: str, made: Sequence[Publication]) -> None:
        """What was acknowledged is there, as it was said to be, and once."""
        chain = self._chains[application]
        versions = [(one.name, one.version) for one in made]
        assert len(set(versions)) == len(versions)
        for one in made:
            assert chain[one.name, one.version] == (one.id.hex(), one.step), (application, one)

    def check_container(self, container: str, record: Sequence[Line], keeps: bool) -> None:
        """In all its lives: every version there is, in order, once; the newest in the end. With a
        snapshot a life goes on where the one before was, else it begins anywhere."""
        versions: dict[tuple[str, str], int] = {}
        steps: dict[str, int] = {}
        fresh: set[str] = set()
        """Applications of which this life began with nothing."""
        for line in record:
            if isinstance(line, Begun):
                self._check_begun(container, line, versions, keeps)
                versions = {(one.application, one.name): one.version for one in line.had}
                steps = dict(line.steps)
                fresh = {application for application, step in steps.items() if not step}
                continue
            name = line.application, line.name
            said = f"{container} hears {line} behind version {versions.get(name, 0)}"
            self._check_version(container, line)
            assert line.step >= steps[line.application], f"{said}, step {steps}"
            expected = versions.get(name, 0) + 1
            begins = line.application in fresh and name not in versions
            assert line.version == expected or (begins and line.version > expected), said
            versions[name] = line.version
            steps[line.application] = line.step
            self.heard += 1
        for application in steps:
            for one, version in newest(self._chains[application]).items():
                assert versions.get((application, one)) == version, (container, application, one)

    def _check_begun(
        self, container: str, begun: Begun, before: dict[tuple[str, str], int], keeps: bool
    ) -> None:
        """What it has is the cluster's, and nothing that it did not hear of."""
        for one in begun.had:
            self._check_version(container, one)
            assert one.version <= before.get((one.application, one.name), 0), (container, one)
        assert keeps or not begun.had, container

    def _check_version(self, container: str, heard: Heard) -> None:
        known = self._chains[heard.application].get((heard.name, heard.version))
        assert known == (heard.id, heard.step), f"{container} has {heard}, which is {known}"
        name = heard.application, heard.name, heard.version
        assert self._digests.setdefault(name, heard.digest) == heard.digest, (container, heard)


async def primary_of(address: Address, cluster: str, application: str) -> str:
    """The node that serves an application, as the one at `address` knows it."""
    reader = TableReader(address, cluster)
    try:
        await reader.open()
        table: Table = codec.decode(await reader.ask())
    finally:
        await reader.close()
    number = table.primaries[place(application) % len(table.primaries)]
    return next((contact.name for contact in table.contacts if contact.id == number), "")
