"""The writing end of a reader that wants its events as CloudEvents (contract 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from ringmere.core import frames
from ringmere.core.backlog import Backlog, Frame
from ringmere.core.cloudevent_frames import cloudevent_frames
from ringmere.hub.lagging import Taken
from ringmere.hub.outlet import Followed, Outlet
from ringmere.hub.sink import Sink


class CloudEventsOutlet(Outlet):
    """Gives events out in another form than they are handed in.

    It is never flowing and takes no framed bytes, so that all of them come by :meth:`send` and :meth:`fill`: the fast
    path of other readers is not asked about it. What its backlog holds is in its own form, and counts so.
    """

    __slots__ = ()

    def __init__(self, channel: Followed, stream_id: str, sink: Sink, retry_ms: int, backlog: Backlog) -> None:
        super().__init__(channel, stream_id, sink, retry_ms, backlog)
        self.framed = False

    @property
    def flowing(self) -> bool:
        """Whether shared blobs may be written as they are: never."""
        return False

    def send(self, raw: bytes) -> None:
        """Write unframed frames, with their events as CloudEvents."""
        self._put(b"".join(cloudevent_frames(raw, self._channel.session)))

    def comment(self, raw: bytes) -> None:
        """Write unframed bytes that are no block of their own."""
        self.write(frames.chunked(raw) if self.sink.framed else raw)

    def fill(self, turn: Sequence[Frame], before: int, last_id: int) -> Taken:
        """Queue a turn, as far as there is room for its events in their own form."""
        made = cloudevent_frames(b"".join([frame.sse for frame in turn]), self._channel.session)
        sizes = [frames.envelope_size(sse) if frame.size else 0 for frame, sse in zip(turn, made, strict=True)]
        reshaped = [Frame(frame.seq, sse, size) for frame, sse, size in zip(turn, made, sizes, strict=True)]
        return super().fill(reshaped, before, last_id)
