"""How many bytes processes have sent over TCP, as the kernel counts them per socket (`ss -tinp`).

The count is of payload: without the headers of TCP and IP and without what TCP sent twice, so it
says something about a system and not about the day. It covers every socket of a process: to
subscribers, to publishers, to other servers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection

Sent = dict[str, int]
"""Socket, by its two addresses and its process → bytes sent so far."""

_PID = re.compile(r"\bpid=(\d+)")
_SENT = re.compile(r"\bbytes_sent:(\d+)")
_TWICE = re.compile(r"\bbytes_retrans:(\d+)")
_TIMEOUT_S = 30.0


def is_installed() -> bool:
    return shutil.which("ss") is not None


def sent_by(pids: Collection[int]) -> Sent:
    """Of all open connections of these processes."""
    listing = subprocess.run(
        ["ss", "-tinpHO"], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
    )
    return sent_in(listing.stdout, pids)


def sent_in(listing: str, pids: Collection[int]) -> Sent:
    """The same, out of a listing with one line per socket."""
    sent: Sent = {}
    for line in listing.splitlines():
        owners = [int(pid) for pid in _PID.findall(line)]
        count = _SENT.search(line)
        owner = next((pid for pid in owners if pid in pids), None)
        if owner is not None and count is not None:
            _, _, _, local, remote, *_ = line.split()
            twice = _TWICE.search(line)
            sent[f"{local} {remote} {owner}"] = int(count[1]) - (int(twice[1]) if twice else 0)
    return sent


def between(before: Sent, after: Sent) -> int:
    """What was sent from one reading to the next, on every socket that was open at the second."""
    return sum(count - before.get(socket, 0) for socket, count in after.items())
