"""One short question to a gateway, for those who must not wait for a whole HTTP library to be loaded."""

from __future__ import annotations

import http.client
from typing import NamedTuple
from urllib.parse import urlsplit

TIMEOUT = 3.0
"""Seconds that one step of an answer is waited for."""
MAX_ANSWER = 64 * 1024


class Answer(NamedTuple):
    """What a gateway has answered; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(server: str, path: str, method: str = "GET", timeout: float = TIMEOUT) -> Answer:
    """Ask the gateway at the URL ``server``. Raises ``OSError`` when there is no answer, ``ValueError`` for no URL."""
    url = urlsplit(server)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{server!r} is no URL of a gateway")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=timeout)
    try:
        connection.request(method, url.path.rstrip("/") + path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(MAX_ANSWER)
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
    except http.client.HTTPException as error:
        raise OSError(f"the answer is no HTTP: {error!r}") from error
    finally:
        connection.close()
