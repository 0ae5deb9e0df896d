"""What a client makes of a stream when it does as the protocol says, and how it knows whether that is the truth."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ringmere.core.decoder import Decoder, Message
from ringmere.hub.options import Resync
from support.hub import Client

State = dict[str, list[int]]
"""For each key how often it was written, and by which event last: what is missing or doubled shows in one of both."""


def folded(state: State, data: dict[str, Any]) -> State:
    """Return the state behind one more event."""
    times, _ = state.get(data["key"], [0, 0])
    return {**state, data["key"]: [times + 1, data["n"]]}


@dataclass(frozen=True)
class Manner:
    """How a client was written.

    A ``native`` one is an EventSource: its cursor is what the id lines say, its URL stays. Others keep the id that a
    stored state reaches to, and the point at which they began. ``resync`` and ``snapshot`` are the parameters of 10.2.
    """

    native: bool
    resync: Resync
    snapshot: bool


@dataclass
class ModelClient:
    """A client over all its connections.

    ``whole`` is its own word that ``state`` is that behind ``cursor`` (or the point where it began), without a hole.
    """

    session: str
    manner: Manner
    cursor: int | None = None
    state: State = field(default_factory=dict)
    whole: bool = False
    stopped: bool = False
    """Whether it was told that the session is closed and it has everything (204)."""
    client: Client | None = None
    _seen: int = 0
    _stale: bool = False

    def opened(self, client: Client) -> None:
        """Go on with a new connection."""
        assert client.reader is not None
        self.client, self._seen, self._stale = client, 0, False
        self.stopped = client.reader.ended and not client.raw
        if not self.manner.native and self.cursor is None:
            self.cursor = client.reader.start_id

    def take(self, at_most: int | None = None) -> None:
        """Apply what has come, or the next few frames of it, as if the connection had been cut behind them."""
        assert self.client is not None
        decoder = Decoder()
        messages = decoder.feed(self.client.body)
        end = len(messages) if at_most is None else min(self._seen + at_most, len(messages))
        for message in messages[self._seen : end]:
            self._apply(message)
        self._seen = end
        if end == len(messages):
            self._move_to(decoder.last_id)

    def leave(self) -> None:
        """Drop the connection."""
        if self.client is not None and self.client.reader is not None and not self.client.reader.ended:
            self.client.leave()
        self.client = None

    def load(self, state: State, last_event_id: int) -> None:
        """Take a state that was loaded, to resume behind its event."""
        self.state, self.cursor, self.whole = state, last_event_id, True

    def _apply(self, message: Message) -> None:
        data = json.loads(message.data)
        if "id" in data:
            assert not self.whole or self.manner.native or data["id"] > (self.cursor or 0), "an event came twice"
            self.state = folded(self.state, data["data"])
        elif message.type == "state_resync_required":
            self.whole = False
            self._stale = data["data"].get("detail") == "snapshot_stale"
        elif message.type == "session_snapshot":
            reaches_to = data["data"]["lastEventId"]
            # One that reaches to 0 is no more than a wish for everything that is left.
            self.state, self.whole = data["data"]["state"], reaches_to > 0 and not self._stale
            if not self.manner.native:
                self.cursor = reaches_to
        self._move_to(message.last_id)

    def _move_to(self, last_id: str) -> None:
        if last_id and (self.manner.native or self.cursor is None or int(last_id) > self.cursor):
            self.cursor = int(last_id)
