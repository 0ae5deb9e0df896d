"""What is told of a stream at its end: how much it was given, and how much it was not."""

from __future__ import annotations

import re

from ringmere.core.reasons import CloseReason
from ringmere.hub.observer import Account
from support.hub import Client, arrived, world


async def test_replayed_and_live_events_and_their_bytes_are_counted() -> None:
    async with world() as here:
        here.put(5)
        client = await here.connect(2, client=Client(framed=False))
        await arrived(client, 3)
        here.put(2)
        await arrived(client, 5)
        size = sum(map(len, re.findall(rb"id: .*?\n\n", client.body, re.DOTALL)))
        client.leave()
        assert here.watcher.accounts == [Account(events=5, lag=0, replayed=3, size=size)]


async def test_what_was_queued_at_the_end_is_the_lag() -> None:
    async with world() as here:
        client = await here.stalled()
        here.put(7)
        await here.settle()
        client.leave()
        [account] = here.watcher.accounts
        assert (account.events, account.lag, account.replayed) == (7, 7, 0)
        assert here.watcher.closed == [CloseReason.CLIENT_GONE]
