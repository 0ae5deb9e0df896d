"""PyPI ``aiohttp-sse-client2``, which resumes after a clean end and is helped after a cut.

Every event and state is a line of JSON.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from json import dumps

from aiohttp import ClientError
from aiohttp_sse_client2.client import EventSource

url, last = sys.argv[1:3]


def say(**line: object) -> None:
    print(dumps(line), flush=True)


async def read() -> None:
    """Read until the client gives up."""
    global last
    headers = {"Last-Event-Id": last} if last else {}
    first = timedelta(seconds=0.1)
    async with EventSource(url, None, first, headers=headers, on_open=lambda: say(state="open")) as source:
        async for event in source:
            last = event.last_event_id or last
            say(event=event.type, id=event.last_event_id, data=event.data)


async def main() -> None:
    while True:
        try:
            await read()
        except ConnectionAbortedError as error:
            say(state="closed", code=204 if "status: 204" in str(error.args[0]) else str(error))
            return
        except ClientError as error:
            say(state="lost", code=repr(error))
        await asyncio.sleep(0.1)


asyncio.run(main())
