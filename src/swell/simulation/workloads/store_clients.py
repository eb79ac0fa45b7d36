"""Clients of the store: processes that ask, wait, think, and write down what they heard.

Every value is written once, so that the checkers can tell writes apart. Each client uses half of
the keys, so that about half of the clients compete for any one key. On *chain* keys clients only
read and replace what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.client.session_pending import Answer
from swell.dht import operations as dht
from swell.errors import OutcomeUnknownError, SwellError
from swell.simulation.checkers.history import UNKNOWN, Output, Recorder, Value
from swell.simulation.simulation import Simulation
from swell.simulation.workloads.clients import Client
from swell.store.request import Request

DEADLINE_S = 4.0
CHAIN_SHARE = 0.2
"""Share of the operations that go to chain keys."""
CHAIN = "chain"

MIX = (
    "get", "get", "get", "put", "put", "put", "contains", "remove", "put_if_absent",
    "put_and_retrieve", "replace", "replace_if", "replace_if", "remove_if",
)  # fmt: skip

Input = tuple[Value, ...]
Ended = Callable[[bool], None]


class StoreClient(Client):
    """One client of the store and what it does."""

    def __init__(
        self,
        simulation: Simulation,
        recorder: Recorder,
        number: int,
        site: str,
        nodes: Callable[[], Sequence[str]],
        keys: Sequence[str],
    ) -> None:
        super().__init__(simulation, f"client{number}", site, nodes)
        self.acknowledged = 0
        self.heard: Output = UNKNOWN
        """The answer that came last."""
        self._recorder = recorder
        self._keys = [key for k, key in enumerate(keys) if k % 2 == number % 2]
        self._chains = [key for key in self._keys if key.startswith(CHAIN)]
        self._values = 0
        self._seen: dict[str, Value] = {}
        self._open: dict[int, None] = {}

    def forget(self) -> None:
        for number in self._open:
            self._recorder.unknown(number)
        self._open.clear()
        self._seen.clear()

    # What to ask.

    def ask(self) -> None:
        chains = self._chains
        if chains and self.rng.random() < CHAIN_SHARE:
            key = self.rng.choice(chains)
            input = self._chain_input(key)
        else:
            key = self.rng.choice([key for key in self._keys if key not in chains])
            input = self._any_input(key)
        self.execute(key, input, DEADLINE_S, lambda known: self.think())

    def new_value(self) -> str:
        self._values += 1
        return f"{self.name}-{self._values}"

    def _any_input(self, key: str) -> Input:
        name = self.rng.choice(MIX)
        seen = self._seen.get(key)
        match name:
            case "get" | "contains" | "remove":
                return (name,)
            case "replace_if":
                return ("replace", seen or self.new_value(), self.new_value())
            case "remove_if":
                return ("remove", seen or self.new_value())
            case _:
                return (name, self.new_value())

    def _chain_input(self, key: str) -> Input:
        if key not in self._seen:
            return ("get",)
        seen = self._seen.pop(key)
        new = self.new_value()
        return ("put_if_absent", new) if seen is None else ("replace", seen, new)

    # How it ends.

    def execute(self, key: str, input: Input, deadline_s: float, ended: Ended) -> None:
        """One operation, written down; `ended(known)`: was an answer heard?"""
        number = self._recorder.call(f"{self.name}.{self.process.starts}", key, *input)
        self._open[number] = None
        starts = self.process.starts

        def done(outcome: Answer | SwellError) -> None:
            if self.process.starts != starts or number not in self._open:
                return
            del self._open[number]
            self.heard, known = self._record(number, input, outcome)
            if known:
                self._learn(key, input, self.heard)
            ended(known)

        place, read, body = request_of(key, input)
        self.session.call(dht.DHT_SERVICE, place, read, body, deadline_s, done)

    def _record(
        self, number: int, input: Input, outcome: Answer | SwellError
    ) -> tuple[Output, bool]:
        """What an outcome says, to the history too: was an answer heard?"""
        if isinstance(outcome, Answer):
            output = output_of(input, outcome.body)
            self._recorder.returned(number, output)
            self.acknowledged += 1
            return output, True
        if isinstance(outcome, OutcomeUnknownError):
            self._recorder.unknown(number)
        else:
            # The session promises that it was not executed, and will not be.
            self._recorder.failed(number)
        return UNKNOWN, False

    def _learn(self, key: str, input: Input, output: Output) -> None:
        """Remember what the key holds, as far as an answer tells."""
        match input:
            case ("get",):
                self._seen[key] = output if output is not UNKNOWN else None
            case ("put" | "put_and_retrieve", value):
                self._seen[key] = value
            case ("put_if_absent", value) if output is True:
                self._seen[key] = value
            case ("replace", _, value) if output is True:
                self._seen[key] = value
            case _:
                self._seen.pop(key, None)


def request_of(key: str, input: Input) -> Request:
    """An operation of the DHT, as the checker's model writes it."""
    name, *arguments = input
    values = [str(value).encode() for value in arguments]
    match name, values:
        case "get", []:
            return dht.get(key)
        case "contains", []:
            return dht.contains(key)
        case "put", [value]:
            return dht.put(key, value)
        case "put_and_retrieve", [value]:
            return dht.put_and_retrieve(key, value)
        case "put_if_absent", [value]:
            return dht.put_if_absent(key, value)
        case "replace", [value]:
            return dht.replace(key, value)
        case "replace", [old, new]:
            return dht.replace_if(key, old, new)
        case "remove", []:
            return dht.remove(key)
        case "remove", [value]:
            return dht.remove(key, value)
        case _:
            raise AssertionError(f"{input} is not an operation of the DHT")


def output_of(input: Input, result: bytes) -> Output:
    match input:
        case ("get",) | ("put_and_retrieve" | "replace", _):
            value = dht.value_of(result)
            return None if value is None else value.decode()
        case _:
            return dht.truth_of(result)
