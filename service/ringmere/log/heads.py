"""Reading head streams: the last event of a session, also after the log has expired (contract 1.8).

A head stream numbers its messages itself. The sequence that ids are made of stands in the header by which
the server names the source of a copied message; publishers cannot set it.
"""

from __future__ import annotations

from ringmere.log import api
from ringmere.log.connect import Connection
from ringmere.log.port import Stored

_SOURCE = b"Nats-Stream-Source"


async def read_head(connection: Connection, stream: str, subject: str) -> Stored | None:
    """Leader read: the session's last message with the event stream's sequence, None when nothing is known."""
    found = await _last(connection, stream, subject)
    return None if found is None else Stored(_origin(found), api.nanoseconds(found.time), found.payload)


async def purge_head(connection: Connection, stream: str, subject: str, up_to: int) -> None:
    """Remove the session's head unless it is of an event behind the event stream's sequence ``up_to``."""
    found = await _last(connection, stream, subject)
    if found is not None and _origin(found) <= up_to:
        await api.call(connection, f"STREAM.PURGE.{stream}", {"filter": subject, "seq": found.seq + 1})


async def _last(connection: Connection, stream: str, subject: str) -> api.StoredMessage | None:
    try:
        return await api.last_message(connection, stream, subject)
    except api.ApiError as error:
        # Being made anew, or lost with an instance that was at it: then no head is known, which is no harm.
        if error.err_code == api.STREAM_NOT_FOUND:
            return None
        raise


def _origin(message: api.StoredMessage) -> int:
    """Return the second word of ``RINGMERE_0 42 > > ringmere.events.0.s``."""
    words = api.server_header(message.headers, _SOURCE).split()
    return int(words[1]) if len(words) > 1 else message.seq
