"""What a transport gives the hub: the seam between ``hub`` and ``http``."""

from __future__ import annotations

from typing import Protocol

from ringmere.core.reasons import CloseReason


class Sink(Protocol):
    """The writing end of one accepted stream. All methods are synchronous and never raise."""

    transport: str
    """``sse`` or ``websocket``: a metric label."""
    framed: bool
    """Whether :meth:`write` expects HTTP/1.1 chunk framing around its bytes (HTTP/1.0 does not)."""
    paused: bool
    """Whether the transport asked to pause: nothing should be written until it resumes."""

    def write(self, data: bytes) -> None:
        """Hand bytes, framed as the sink expects, to the transport."""

    def heartbeat(self) -> None:
        """Show a quiet client that the stream lives; called while nothing is paused or queued."""

    def finish(self, reason: CloseReason) -> None:
        """End the body cleanly (last chunk, close frame) and close the connection once everything is flushed."""

    def abort(self) -> None:
        """Drop the connection now."""
