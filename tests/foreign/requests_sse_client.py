"""PyPI ``requests-sse``, which resumes by itself: every event and state as a line of JSON."""

from __future__ import annotations

import sys
from json import dumps

from requests_sse import EventSource, InvalidStatusCodeError

url, cursor = sys.argv[1:3]


def say(**line: object) -> None:
    print(dumps(line), flush=True)


try:
    with EventSource(
        url,
        latest_event_id=cursor or None,
        on_open=lambda: say(state="open"),
        on_error=lambda: say(state="lost", code=None),
    ) as source:
        for event in source:
            say(event=event.type, id=event.last_event_id, data=event.data)
except InvalidStatusCodeError as error:
    say(state="closed", code=error.status_code)
