"""What a hub with traces asks and tells beyond what every observer hears; a hub without them has no tracer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ringmere.core.trace import TraceContext


class Tracer(Protocol):
    """The traces of a hub. Called on the event loop; must not block or raise."""

    def publishing(
        self, session: str, events: int, trace: TraceContext | None
    ) -> AbstractContextManager[TraceContext | None]:
        """Span a publish that was asked for within ``trace``; its outcome is told to the observer inside the block.

        The block is given what the stored messages are to carry, None for nothing.
        """

    def reading(self, stream_id: str, trace: TraceContext) -> None:
        """Note that a stream was asked for within ``trace``; told right before the stream is opened."""

    def handed_out(self, session: str, event_id: int, trace: TraceContext, readers: int, seconds: float) -> None:
        """Note that a live event with a sampled trace went to this instance's readers, so long after it was stored."""
