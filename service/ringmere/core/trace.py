"""W3C trace context as a plain value: what a request or a stored message says of the trace it belongs to.

Written by others, so it is bounded and checked; what is not well formed counts as absent and is never an error.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ringmere.core.limits import MAX_TRACESTATE_CHARS

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
"""Names of the two headers, in HTTP and in NATS messages alike."""

_PARENT = re.compile(r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")
_STATE = re.compile(r"[\x20-\x7e]*=[\x20-\x7e]*")


class TraceContext(NamedTuple):
    """The span that something belongs to: ids in lower-case hex, whether it is recorded, and the vendors' state."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header's value, in version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def headers(self) -> dict[str, str]:
        """Return the headers that carry it on."""
        headers = {TRACEPARENT: self.traceparent}
        if self.state:
            headers[TRACESTATE] = self.state
        return headers


def parse_trace(parent: str, state: str = "") -> TraceContext | None:
    """Return the context that the two headers spell, None when ``parent`` is none.

    A later version than 00 may go on behind what is known here. A state that is too long or malformed is left out.
    """
    match = _PARENT.match(parent)
    if match is None or match["version"] == "ff" or not (int(match["trace"], 16) and int(match["span"], 16)):
        return None
    rest = parent[match.end() :]
    if rest and (match["version"] == "00" or rest[0] != "-"):
        return None
    if len(state) > MAX_TRACESTATE_CHARS or not _STATE.fullmatch(state):
        state = ""
    return TraceContext(match["trace"], match["span"], bool(int(match["flags"], 16) & 1), state)
