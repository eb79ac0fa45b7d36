"""Coordinates (EPU-1): exact small steps, refused input, and accuracy on a map of real cities."""

from __future__ import annotations

import math
import statistics
from itertools import combinations
from random import Random

import msgspec
import pytest

from swell.overlay.coordinates import (
    PEERS_MAX,
    Coordinate,
    CoordinateClient,
    distance_s,
    raw_distance_s,
)
from swell.settings import CoordinateSettings

SETTINGS = CoordinateSettings()

# Latitude and longitude in degrees.
CITIES = {
    "Frankfurt": (50.11, 8.68),
    "New York": (40.71, -74.01),
    "Tokyo": (35.68, 139.69),
    "Sao Paulo": (-23.55, -46.63),
    "Sydney": (-33.87, 151.21),
    "Mumbai": (19.08, 72.88),
    "San Francisco": (37.77, -122.42),
    "Johannesburg": (-26.20, 28.05),
    "London": (51.51, -0.13),
    "Singapore": (1.35, 103.82),
    "Chicago": (41.88, -87.63),
    "Dubai": (25.20, 55.27),
    "Stockholm": (59.33, 18.07),
    "Seoul": (37.57, 126.98),
    "Dallas": (32.78, -96.80),
    "Hong Kong": (22.32, 114.17),
    "Paris": (48.86, 2.35),
    "Toronto": (43.65, -79.38),
    "Santiago": (-33.45, -70.67),
    "Osaka": (34.69, 135.50),
    "Madrid": (40.42, -3.70),
    "Seattle": (47.61, -122.33),
    "Lagos": (6.52, 3.38),
    "Jakarta": (-6.21, 106.85),
    "Warsaw": (52.23, 21.01),
    "Miami": (25.76, -80.19),
    "Melbourne": (-37.81, 144.96),
    "Tel Aviv": (32.09, 34.78),
    "Milan": (45.46, 9.19),
    "Mexico City": (19.43, -99.13),
    "Taipei": (25.03, 121.57),
    "Nairobi": (-1.29, 36.82),
}

EARTH_RADIUS_KM = 6371.0
FIBRE_KM_PER_S = 299_792.0 * 2 / 3
PATH_FACTOR = 1.5  # cables are longer than great circles


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    lat_a, lon_a, lat_b, lon_b = map(math.radians, (*a, *b))
    chord = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(chord))


class Fleet:
    """Nodes that probe each other at random, and the true round trips between them."""

    def __init__(self, rtts_s: list[list[float]], rng: Random) -> None:
        self.rtts_s = rtts_s
        self.rng = rng
        self.clients = [CoordinateClient(SETTINGS, Random(rng.random())) for _ in rtts_s]

    @classmethod
    def in_cities(cls, nodes: int, seed: int) -> Fleet:
        """Great circles between random cities, and an access link of each node's own."""
        rng = Random(seed)
        cities = rng.sample(list(CITIES.values()), k=len(CITIES))
        places = [cities[n % len(cities)] for n in range(nodes)]
        access_s = [rng.uniform(0.5e-3, 8e-3) for _ in range(nodes)]

        def rtt_s(a: int, b: int) -> float:
            fibre_km = PATH_FACTOR * great_circle_km(places[a], places[b])
            return 2 * fibre_km / FIBRE_KM_PER_S + access_s[a] + access_s[b]

        return cls([[rtt_s(a, b) for b in range(nodes)] for a in range(nodes)], rng)

    @classmethod
    def in_one_rack(cls, nodes: int, rtt_s: float, seed: int) -> Fleet:
        return cls([[rtt_s] * nodes for _ in range(nodes)], Random(seed))

    def run(self, rounds: int, jitter: float = 0.05) -> None:
        """In each round every node probes one random other."""
        count = len(self.clients)
        for _ in range(rounds):
            for a, client in enumerate(self.clients):
                b = (a + self.rng.randrange(1, count)) % count
                sample_s = self.rtts_s[a][b] * self.rng.uniform(1 - jitter, 1 + jitter)
                assert client.update(b, self.clients[b].coordinate, sample_s)

    def median_error(self) -> float:
        """Median over all pairs of |estimate − truth| / truth."""
        return statistics.median(
            abs(self.clients[a].distance_s(self.clients[b].coordinate) / self.rtts_s[a][b] - 1)
            for a, b in combinations(range(len(self.clients)), 2)
        )


def at(
    *vector: float, error: float = 0.5, adjustment: float = 0.0, height: float = 0.0
) -> Coordinate:
    padded = vector + (0.0,) * (SETTINGS.dimensions - len(vector))
    return Coordinate(vector=padded, error=error, adjustment=adjustment, height=height)


def settled(seed: int = 1) -> tuple[CoordinateClient, Coordinate]:
    """A client that knows its distance of 50 ms to the returned coordinate."""
    client = CoordinateClient(SETTINGS, Random(seed))
    peer = at(0.1)
    for _ in range(200):
        client.update(1, peer, 0.05)
    return client, peer


@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 32, 64, 128])
def test_epu_1_median_error_on_cities_is_under_six_per_cent(nodes: int) -> None:
    # Small fleets settle slowest: after 300 rounds 8 of 100 fleets of four are still above the
    # bar, after 500 two (seed 3 is one of them), after 1,000 none.
    small = nodes <= 16
    for seed in range(4 if small else 1):
        fleet = Fleet.in_cities(nodes, seed)
        fleet.run(rounds=1000 if small else 500)
        assert fleet.median_error() < 0.06, f"seed {seed}"


def test_nodes_of_one_rack_stay_close_to_each_other() -> None:
    """Nearly coincident nodes must not drive their heights apart from the round trips seen."""
    fleet = Fleet.in_one_rack(nodes=16, rtt_s=0.3e-3, seed=3)
    fleet.run(rounds=300, jitter=0.2)
    assert fleet.median_error() < 0.15
    assert max(client.coordinate.height for client in fleet.clients) < 1e-3


def test_estimated_error_tells_a_newcomer_from_a_settled_node() -> None:
    client, _ = settled()
    newcomer = CoordinateClient(SETTINGS, Random(2))
    assert newcomer.coordinate.error == SETTINGS.error_max
    assert client.coordinate.error < 0.1


@pytest.mark.parametrize(
    ("a", "b", "expected_s"),
    [
        (at(0.0), at(0.0), 0.0),
        (at(0.03), at(0.0, 0.04), 0.05),
        (at(0.03, height=0.002), at(0.0, 0.04, height=0.003), 0.055),
        (at(0.03, adjustment=0.01), at(0.0, 0.04, adjustment=-0.005), 0.055),
        (at(0.03, adjustment=-0.03), at(0.0, 0.04, adjustment=-0.03), 0.05),
    ],
    ids=["same", "position", "heights", "adjustments", "adjustments-below-zero-do-not-count"],
)
def test_distance(a: Coordinate, b: Coordinate, expected_s: float) -> None:
    assert distance_s(a, b) == pytest.approx(expected_s)
    assert distance_s(b, a) == distance_s(a, b)
    assert raw_distance_s(a, b) == math.dist(a.vector, b.vector) + a.height + b.height


def test_one_step_follows_the_rule() -> None:
    """Error, force and height of a single update, computed by hand."""
    settings = CoordinateSettings(adjustment_window=0, gravity_rho=1e12)
    client = CoordinateClient(settings, Random(1))
    client.update(1, at(0.0), 0.08)
    before, peer = client.coordinate, at(0.1, height=0.001)
    estimate_s = distance_s(before, peer)
    client.update(2, peer, 0.3)
    weight = before.error / (before.error + peer.error)
    gain = settings.error_gain * weight
    force_s = settings.force_gain * weight * (0.3 - estimate_s)
    length_s = math.dist(before.vector, peer.vector)
    after = client.coordinate
    assert after.error == pytest.approx(
        min(gain * (0.3 - estimate_s) / 0.3 + before.error * (1 - gain), settings.error_max)
    )
    assert math.dist(after.vector, peer.vector) == pytest.approx(length_s + force_s)
    assert after.height == pytest.approx(
        before.height + (before.height + peer.height) * force_s / length_s
    )


def test_adjustment_is_half_the_misfit_over_the_window() -> None:
    client = CoordinateClient(CoordinateSettings(gravity_rho=1e12), Random(1))
    peer = at(0.1)
    client.update(1, peer, 0.05)
    mine = client.coordinate
    misfit_s = 0.05 - raw_distance_s(mine, peer)
    assert mine.adjustment == pytest.approx(misfit_s / (2 * SETTINGS.adjustment_window))


@pytest.mark.parametrize("rtt_s", [0.0, -0.001, 10.001, math.nan, math.inf, -math.inf])
def test_round_trip_out_of_range_is_refused(rtt_s: float) -> None:
    client, peer = settled()
    before = client.coordinate
    assert not client.update(1, peer, rtt_s)
    assert client.coordinate == before


@pytest.mark.parametrize(
    "malformed",
    [
        Coordinate(vector=(), error=0.5, adjustment=0.0, height=0.0),
        Coordinate(vector=(0.0,) * 7, error=0.5, adjustment=0.0, height=0.0),
        at(math.nan),
        at(0.0, math.inf),
        at(-11.0),
        at(0.1, error=math.nan),
        at(0.1, error=-0.1),
        at(0.1, error=2.0),
        at(0.1, adjustment=math.nan),
        at(0.1, adjustment=-math.inf),
        at(0.1, height=-0.001),
        at(0.1, height=math.inf),
    ],
)
def test_malformed_coordinate_is_refused(malformed: Coordinate) -> None:
    client, _ = settled()
    before = client.coordinate
    assert not client.update(2, malformed, 0.05)
    assert client.coordinate == before


def test_refused_sample_does_not_enter_the_filter() -> None:
    client, peer = settled()
    before = client.coordinate
    for _ in range(3):
        client.update(1, peer, 11.0)
    client.update(1, peer, 0.05)
    assert math.dist(client.coordinate.vector, before.vector) < 1e-3


def test_broken_own_coordinate_starts_anew() -> None:
    """Every sample is valid, yet the arithmetic leaves the range: back to the origin, counted."""
    client = CoordinateClient(CoordinateSettings(force_gain=1e300, gravity_rho=1e-200), Random(1))
    assert client.update(1, at(0.1), 0.05)
    assert client.resets == 1
    assert client.coordinate == Coordinate.origin(SETTINGS)


def test_median_filter_ignores_one_spike() -> None:
    client, peer = settled()
    before = client.coordinate
    client.update(1, peer, 5.0)
    assert math.dist(client.coordinate.vector, before.vector) < 1e-3
    client.update(1, peer, 5.0)
    assert math.dist(client.coordinate.vector, before.vector) > 5e-3


def test_forgotten_peer_starts_with_an_empty_filter() -> None:
    client, peer = settled()
    before = client.coordinate
    client.forget(1)
    client.forget(1)
    client.update(1, peer, 5.0)
    assert math.dist(client.coordinate.vector, before.vector) > 5e-3


def test_filters_are_bounded_and_the_least_recent_goes_first() -> None:
    client, peer = settled()
    for other in range(2, PEERS_MAX + 1):
        client.update(other, peer, 0.05)
    client.update(1, peer, 0.05)
    client.update(PEERS_MAX + 1, peer, 0.05)
    before = client.coordinate
    client.update(1, peer, 5.0)
    assert math.dist(client.coordinate.vector, before.vector) < 1e-3, "peer 1 was used recently"
    client.update(2, peer, 5.0)
    assert math.dist(client.coordinate.vector, before.vector) > 5e-3, "peer 2 was forgotten"


def test_gravity_keeps_the_centroid_near_the_origin() -> None:
    """Without gravity nothing ties the fleet to a place: shift it, and it stays shifted."""

    def drift_s(gravity_rho: float) -> float:
        settings = CoordinateSettings(gravity_rho=gravity_rho)
        rng = Random(5)
        clients = [CoordinateClient(settings, Random(n)) for n in range(4)]
        anchor = at(3.0, error=0.0)
        for n, client in enumerate(clients):
            for _ in range(100):
                client.update(99, anchor, 0.05 + 0.01 * n)
        for _ in range(2000):
            for n, client in enumerate(clients):
                other = (n + rng.randrange(1, 4)) % 4
                client.update(other, clients[other].coordinate, 0.05)
        vectors = [client.coordinate.vector for client in clients]
        return math.hypot(*(sum(parts) / 4 for parts in zip(*vectors, strict=True)))

    assert drift_s(gravity_rho=1e12) > 2.5
    assert drift_s(gravity_rho=SETTINGS.gravity_rho) < 2.5
    assert drift_s(gravity_rho=20.0) < 0.5


def test_coincident_nodes_leave_each_other_in_directions_of_their_own() -> None:
    clients = [CoordinateClient(SETTINGS, Random(n)) for n in range(3)]
    origin = Coordinate.origin(SETTINGS)
    for client in clients:
        client.update(9, origin, 0.1)
    for a, b in combinations([client.coordinate for client in clients], 2):
        assert math.dist(a.vector, b.vector) > 0.01


def test_same_seed_gives_the_same_coordinates() -> None:
    def run() -> list[Coordinate]:
        fleet = Fleet.in_cities(6, seed=4)
        fleet.run(rounds=20)
        return [client.coordinate for client in fleet.clients]

    assert run() == run()


def test_coordinate_travels_unchanged() -> None:
    client, _ = settled()
    sent = client.coordinate
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Coordinate) == sent
