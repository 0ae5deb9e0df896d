"""Cancel: somebody asks for the end of one task, and of nothing else of its session (contract 10.3)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringmere.core.errors import InvalidCancel
from ringmere.core.limits import MAX_REASON_CHARS
from ringmere.core.strict_json import load


class CancelFlag(NamedTuple):
    """That a task is to end: since when, milliseconds since 1970, and why. The first request's, whoever asks again."""

    requested_at: int
    reason: str | None = None


def parse_cancel(body: bytes) -> str | None:
    """Return the reason that a request's body gives, None for an empty body.

    Raises :class:`~ringmere.core.errors.MalformedBody` when it is not strict JSON (contract 2.1),
    :class:`InvalidCancel` when it is no ``{"reason"?}``.
    """
    if not body:
        return None
    value = load(body)
    if not isinstance(value, dict):
        raise InvalidCancel("a cancel is a JSON object, or no body at all")
    unknown = next((name for name in value if name != "reason"), None)
    if unknown is not None:
        raise InvalidCancel(f"{unknown[:64]!r} is no field of a cancel")
    return check_reason(value["reason"]) if "reason" in value else None


def check_reason(reason: Any) -> str:
    """Return ``reason`` when it can be one, else raise :class:`InvalidCancel`."""
    if not isinstance(reason, str) or not 1 <= len(reason) <= MAX_REASON_CHARS:
        raise InvalidCancel(f"'reason' must be a text of 1 to {MAX_REASON_CHARS} characters")
    return reason


def describe_cancel(session: str, task: str, flag: CancelFlag | None) -> dict[str, Any]:
    """Return the public form of a task's flag (contract 10.3)."""
    answer: dict[str, Any] = {"sessionId": session, "taskId": task, "cancelled": flag is not None}
    if flag is not None:
        answer["requestedAt"] = flag.requested_at
        if flag.reason is not None:
            answer["reason"] = flag.reason
    return answer
