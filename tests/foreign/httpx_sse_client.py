"""PyPI ``httpx-sse``, resumed by hand as its readme says: every event and state as a line of JSON."""

from __future__ import annotations

import sys
import time
from json import dumps

import httpx
from httpx_sse import connect_sse

url, last = sys.argv[1:3]


def say(**line: object) -> None:
    print(dumps(line), flush=True)


def read(client: httpx.Client) -> int:
    """Read one connection to its end; return its status."""
    global last
    with connect_sse(client, "GET", url, headers={"Last-Event-ID": last} if last else {}) as source:
        if source.response.status_code != 200:
            return source.response.status_code
        say(state="open")
        for sse in source.iter_sse():
            last = sse.id or last
            say(event=sse.event, id=sse.id, data=sse.data)
    return 200


with httpx.Client(timeout=None) as client:
    status = 200
    while status == 200:
        try:
            status = read(client)
        except httpx.TransportError as error:
            say(state="lost", code=repr(error))
        time.sleep(0.1)
    say(state="closed", code=status)
