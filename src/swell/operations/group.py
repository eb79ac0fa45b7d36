"""The directory's voters on request: `directory` shows them, `voters` adds or removes one."""

from __future__ import annotations

from swell.directory.messages import GroupReply, Voter
from swell.errors import RefusedError, UnavailableError
from swell.ids import NAME_LENGTH_MAX, check_name
from swell.operations.call import Call, InvalidArgumentError, Result


def show(call: Call) -> None:
    """Who leads, in which term, and how far everybody's log is."""
    call.host.directory.group(lambda reply: _finish(call, reply), call.answer_time_s())


def change(call: Call) -> None:
    """Arguments: `change` (add or remove), `name`, and for add `host` and `port`."""
    verb = call.text("change", 6)
    name = check_name(call.text("name", NAME_LENGTH_MAX), "voter")
    host, port = "", 0
    if verb == "add":
        host = call.text("host", 255)
        port = call.arguments.get("port", 0)
        if not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise InvalidArgumentError("voters needs 'port', a number from 0 to 65535")
    elif verb != "remove":
        raise InvalidArgumentError("voters needs 'change', which is add or remove")
    call.host.directory.change_voters(
        verb == "add",
        Voter(name, host, port),
        lambda reply: _finish(call, reply),
        call.answer_time_s(),
    )


def _finish(call: Call, reply: GroupReply | None) -> None:
    if reply is None:
        call.finish(
            UnavailableError("the directory did not answer in time: look at it, then try again")
        )
    elif reply.error:
        call.finish(RefusedError("voters", reply.error))
    else:
        call.finish(_described(reply))


def _described(reply: GroupReply) -> Result:
    return {
        "leader": reply.leader,
        "term": reply.term,
        "members": [
            {
                "name": member.voter.name,
                "address": str(member.voter.address),
                "role": member.role,
                "leads": member.voter.name == reply.leader,
                "log": member.log,
                "reachable": member.reachable,
            }
            for member in reply.members
        ],
    }
