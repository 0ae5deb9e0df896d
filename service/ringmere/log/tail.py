"""The live tail: what a stream republishes, as it arrives (contract 1.9).

At most once, by nature: a message can be lost between the stream and here. Whoever listens checks the
chain of previous sequences and looks at the log when it breaks or goes quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmere.core.errors import LogRefused, LogUnavailable
from ringmere.log.connect import Connection, Subscription
from ringmere.log.places import Place
from ringmere.log.port import LiveSink, TraceSink
from ringmere.log.stamps import live_stamp
from ringmere.log.traces import sampled_trace


class LiveTail:
    """A live subscription of one session, restored after each reconnect until it is closed."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def close(self) -> None:
        """End it; the sink is not called any more after this returns."""
        self._subscription.close()


async def subscribe(
    connection: Connection,
    place: Place,
    seen: Callable[[int, int, int], None],
    sink: LiveSink,
    traces: TraceSink | None = None,
) -> LiveTail:
    """Start the live tail of a session; when this returns the server has the subscription.

    ``seen`` is told (shard, sequence, time in ns) of each message. What does not end in the server's own
    headers was not republished by a stream, and is passed over. Raises ``LogUnavailable``.
    """
    shard = place.shard

    def take(_subject: bytes, _reply: bytes, block: bytes, payload: bytes) -> None:
        stamp = live_stamp(block)
        if stamp is not None:
            seq, previous, time_ns = stamp
            seen(shard, seq, time_ns)
            sink(seq, previous, time_ns, payload)

    def take_traced(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        take(subject, reply, block, payload)
        trace = sampled_trace(block)
        stamp = live_stamp(block) if trace is not None else None
        if traces is not None and trace is not None and stamp is not None:
            traces(stamp[0], stamp[2], trace)

    try:
        return LiveTail(await connection.subscribe(place.live, take if traces is None else take_traced))
    except LogRefused as error:
        raise LogUnavailable(str(error)) from error
