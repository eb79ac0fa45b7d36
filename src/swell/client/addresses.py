"""Addresses as people write them."""

from __future__ import annotations

from swell.errors import ConfigurationError
from swell.world import Address


def parse_address(text: str, port_min: int = 1) -> Address:
    """HOST:PORT; the host of an IPv6 address may stand in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not port_min <= int(port) <= 65535:
        raise ConfigurationError(f"{text!r} is not an address: write HOST:PORT")
    return Address(host.strip("[]"), int(port))


def parse_addresses(text: str) -> list[Address]:
    return [parse_address(part.strip()) for part in text.split(",")]
