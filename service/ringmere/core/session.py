"""Session and task ids: what may stand in a subject, a URL and a key (contract 1.7)."""

from __future__ import annotations

import re
import secrets

from ringmere.core.errors import InvalidSessionId

SESSION_ID = "[A-Za-z0-9_:@~=-]{1,128}"
"""A session (or task) id as a regular expression."""
_SESSION_ID = re.compile(SESSION_ID)


def check_session_id(text: str) -> str:
    """Return ``text`` when it is a session (or task) id, else raise :class:`InvalidSessionId`.

    The allow-list has no ``.``, ``*``, ``>`` and no blank, so an id is always exactly one literal NATS
    subject token; and no ``/`` or ``%``, so no decoding can turn it into another one.
    """
    if _SESSION_ID.fullmatch(text) is None:
        raise InvalidSessionId("a session id is 1 to 128 characters of A-Z a-z 0-9 _ : @ ~ = -")
    return text


def is_session_id(text: str) -> bool:
    """Say whether ``text`` is a session (or task) id."""
    return _SESSION_ID.fullmatch(text) is not None


def fresh_session_id() -> str:
    """Return a new random session id of 22 characters (128 bits)."""
    return secrets.token_urlsafe(16)
