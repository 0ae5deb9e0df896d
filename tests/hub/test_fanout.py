"""One turn to readers of several transports."""

from __future__ import annotations

from collections import Counter

import pytest

from support.hub import Client, arrived, world


class Other(Client):
    """A client whose transport frames by itself, and keeps each object that it was handed."""

    def __init__(self) -> None:
        super().__init__(framed=False)
        self.transport = "websocket"
        self.handed: list[bytes] = []

    def write(self, data: bytes) -> None:
        super().write(data)
        self.handed.append(data)


async def test_readers_of_another_transport_are_handed_one_object_a_turn_and_counted_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as w:
        told: Counter[str] = Counter()
        monkeypatch.setattr(w.hub.observer, "delivered", lambda transport, events, *_: told.update({transport: events}))
        sse = [await w.connect() for _ in range(2)]
        others = [await w.connect(client=Other()) for _ in range(3)]
        w.put(1)  # the first block of a stream is its own
        for client in (*sse, *others):
            await arrived(client, 1)
        told.clear()
        before = [len(other.handed) for other in others]
        w.put(1)
        for client in (*sse, *others):
            await arrived(client, 2)
        new = [other.handed[count:] for other, count in zip(others, before, strict=True)]
        assert [len(objects) for objects in new] == [1, 1, 1]
        assert len({id(objects[0]) for objects in new}) == 1
        assert told == {"sse": 2, "websocket": 3}
        assert w.hub.stats().subscribers == {"sse": 2, "websocket": 3}
        for other in others:
            other.leave()
        w.put(1)
        await arrived(sse[0], 3)
        assert told == {"sse": 4, "websocket": 3}
        assert w.hub.stats().subscribers == {"sse": 2, "websocket": 0}
