"""One call over HTTP, tried until there is an answer that is final, at one gateway or at several.

Only what is safe to try again belongs here: a publish with its key, a question, a cancel.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp

from ringmere.client.backoff import Backoff, parse_retry_after
from ringmere.client.connect import TRY_LATER
from ringmere.client.errors import ClientError, Unreachable, refusal

QUICK = Backoff(retry=0.0, first=0.2, widest=5.0)
"""The pauses between tries: nobody is told to come back later here, unless the answer says so."""


class Caller:
    """Calls the gateways at ``urls``: the one that has answered last, and when that fails the next.

    ``http`` stays the caller's. ``timeout`` bounds one try, in seconds.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        http: aiohttp.ClientSession | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        backoff: Backoff | None = None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._urls = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls:
            raise ValueError("there is no address of a gateway")
        self._current = 0
        self._http = http
        self._owns_http = http is None
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._backoff = backoff or QUICK
        self._roll = roll

    async def call(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> bytes:
        """Send until there is an answer that is final, and return its body.

        ``deadline`` is by ``time.monotonic``; no try begins behind it. ``wait`` is for how long the gateway is asked to
        hold its answer back, in seconds.

        Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable`` (``maybe_done`` says whether one of the
        tries may have been carried out).
        """
        maybe_done = False
        failures = 0
        while True:
            failures += 1
            floor = 0.0
            current = self._current
            try:
                status, retry_after, answer = await self._try(method, path, body, headers or {}, params or {}, wait)
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
                raise ClientError(f"no address of a gateway: {error}") from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                cause = str(error) or type(error).__name__
                maybe_done = maybe_done or not isinstance(error, aiohttp.ClientConnectorError)
            else:
                if status < 300:
                    return answer
                if status not in TRY_LATER:
                    raise refusal(status, answer)
                cause = str(refusal(status, answer))
                maybe_done = maybe_done or status not in (429, 503)
                floor = parse_retry_after(retry_after, time.time())
            if self._current == current:
                # Unless another call under way has moved on already.
                self._current = (current + 1) % len(self._urls)
            # Before each gateway was tried once there is nothing to wait for.
            if failures % len(self._urls) == 0:
                await self.pause(failures // len(self._urls), floor, deadline, cause, maybe_done)

    async def pause(self, failures: int, floor: float, deadline: float, cause: str, maybe_done: bool) -> None:
        """Wait before the next try, or raise :class:`Unreachable` when it would come after ``deadline``."""
        delay = self._backoff.delay(failures, floor, self._roll(), floor)
        if time.monotonic() + delay > deadline:
            raise Unreachable(f"gave up after {failures} tries: {cause}", maybe_done)
        await asyncio.sleep(delay)

    async def aclose(self) -> None:
        """Release the connections that were made here; idempotent."""
        if self._http is not None and self._owns_http:
            http, self._http = self._http, None
            await http.close()

    async def _try(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        params: Mapping[str, str],
        wait: float,
    ) -> tuple[int, str | None, bytes]:
        if self._http is None:
            self._http = aiohttp.ClientSession()
        timeout = aiohttp.ClientTimeout(total=self._timeout + wait)
        address = self._urls[self._current] + path
        declared = {} if body is None else {"Content-Type": "application/json"}
        sent = {**declared, **self._headers, **headers}
        async with self._http.request(
            method, address, data=body, headers=sent, params=params, timeout=timeout
        ) as response:
            return response.status, response.headers.get("Retry-After"), await response.read()
