"""The gateway that a good engineer writes in an afternoon: what Ringmere is measured against.

aiohttp on uvloop, one nats-py ordered consumer for each SSE connection, one ``StreamResponse.write`` for
each event, with back-pressure by awaiting it. It resumes from ``Last-Event-ID``, sends heartbeats and lets go
of its consumer when the client leaves. It does less than Ringmere for every event: the payload is passed
through unparsed, without an envelope, and nothing checks that what was resumed is complete.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import sys

import nats
import uvloop
from aiohttp import web
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, DiscardPolicy, StreamConfig

STREAM = "NAIVE"
SUBJECT = "naive.events."
HEARTBEAT = 15.0
JETSTREAM = web.AppKey("jetstream", JetStreamContext)


async def events(request: web.Request) -> web.StreamResponse:
    """Stream one session: from the cursor on when there is one, else what is new."""
    cursor = request.headers.get("Last-Event-ID")
    config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    if cursor is not None and cursor.isdecimal():
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=int(cursor) + 1)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    subscribed = asyncio.Event()

    async def forward(message: Msg) -> None:
        await subscribed.wait()
        frame = b"id: %d\ndata: %b\n\n" % (message.metadata.sequence.stream, message.data)
        with contextlib.suppress(ConnectionError):
            await response.write(frame)

    subject = SUBJECT + request.match_info["session"]
    subscription = await request.app[JETSTREAM].subscribe(
        subject, stream=STREAM, cb=forward, ordered_consumer=True, config=config
    )
    try:
        await response.prepare(request)
        subscribed.set()
        while True:
            await asyncio.sleep(HEARTBEAT)
            await response.write(b": hb\n\n")
    except ConnectionError:
        return response
    finally:
        subscribed.set()
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()


async def serve(nats_url: str, port: int, ring_size: int) -> None:
    """Run until cancelled; prints its address when it takes connections."""
    connection = await nats.connect(nats_url)
    jetstream = connection.jetstream(timeout=60)
    await jetstream.add_stream(
        StreamConfig(
            name=STREAM,
            subjects=[SUBJECT + "*"],
            max_msgs_per_subject=ring_size,
            discard=DiscardPolicy.OLD,
            max_age=3600,
            max_consumers=20_000,
        )
    )
    app = web.Application()
    app[JETSTREAM] = jetstream
    app.router.add_get("/session/{session}/events", events)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    print(f"listening on {runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ring-size", type=int, default=8000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(options.nats, options.port, options.ring_size))
    sys.exit(0)


if __name__ == "__main__":
    main()
