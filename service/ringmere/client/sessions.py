"""Ask a gateway which sessions it keeps; have one closed or purged (contract 10.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec

from ringmere.client.errors import BrokenStream, ClientError, Unreachable, refusal
from ringmere.core.session import check_session_id

TIMEOUT = aiohttp.ClientTimeout(total=10.0)
PAGE = 500
"""Sessions asked for at once."""


async def list_sessions(
    url: str, prefix: str = "", *, headers: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield all sessions whose id begins with ``prefix``, ascending, page by page.

    Raises :class:`~ringmere.client.errors.Refused`, or ``Unreachable`` when nothing answers.
    """
    params = {"limit": str(PAGE)} | ({"prefix": prefix} if prefix else {})
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as http:
        while True:
            page = await get(http, f"{url.rstrip('/')}/sessions", params)
            for session in page.get("sessions", []):
                yield session
            if "next" not in page:
                return
            params["after"] = str(page["next"])


async def show_session(url: str, session: str, *, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return one session's state with its readers; raises as :func:`list_sessions` does."""
    check_session_id(session)
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as http:
        return await get(http, f"{url.rstrip('/')}/session/{session}", {})


async def close_session(url: str, session: str, *, headers: Mapping[str, str] | None = None) -> None:
    """Publish ``session_closed``; raises as :func:`list_sessions` does, ``maybe_done`` when nobody knows."""
    await _delete(url, session, {}, headers)


async def purge_session(url: str, session: str, *, headers: Mapping[str, str] | None = None) -> None:
    """Remove all that is stored of a session; the same again is safe. Raises as :func:`close_session` does."""
    await _delete(url, session, {"purge": "1"}, headers)


async def _delete(url: str, session: str, params: Mapping[str, str], headers: Mapping[str, str] | None) -> None:
    address = f"{url.rstrip('/')}/session/{check_session_id(session)}"
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as http:
        try:
            async with http.delete(address, params=params) as response:
                body = await response.read()
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise ClientError(f"no address of a gateway: {error}") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            asked = not isinstance(error, aiohttp.ClientConnectorError)
            raise Unreachable(str(error) or type(error).__name__, maybe_done=asked) from error
    if response.status != 204:
        raise refusal(response.status, body)


async def get(http: aiohttp.ClientSession, address: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON object that is answered at ``address``; raises as :func:`list_sessions` does."""
    try:
        async with http.get(address, params=params) as response:
            body = await response.read()
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise ClientError(f"no address of a gateway: {error}") from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unreachable(str(error) or type(error).__name__, maybe_done=False) from error
    if response.status != 200:
        raise refusal(response.status, body)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BrokenStream(f"the answer is no JSON object: {error}") from error
