"""curl, started again with the last id after each end: every event and state as a line of JSON."""

from __future__ import annotations

import subprocess
import sys
import time
from json import dumps

from ringmere.core.decoder import Decoder

url, last = sys.argv[1:3]


def say(**line: object) -> None:
    print(dumps(line), flush=True)


def read() -> int:
    """Read one connection to its end; return its status, 0 when there was none."""
    global last
    header = ["-H", f"Last-Event-ID: {last}"] if last else []
    command = ["curl", "-sN", *header, "-w", "\n: status %{http_code}\n", url]
    decoder = Decoder()
    tail = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        while data := curl.stdout.read1(65536):
            tail = (tail + data)[-64:]
            for message in decoder.feed(data):
                last = message.last_id or last
                say(event=message.type, id=message.last_id, data=message.data)
    return int(tail.rsplit(b": status ", 1)[1])


status = 200
while status in (200, 0):
    status = read()
    say(state="lost", code=status)
    time.sleep(0.1)
say(state="closed", code=status)
