"""What can go wrong on the client's side, as branches of the one error tree.

::

    RingmereError
    └── ClientError
        ├── Refused        the service said no; trying the same again is of no use
        ├── Unreachable    gave up after trying again for as long as was allowed
        ├── BrokenStream   200, but what came is not this protocol
        └── TaskCancelled  the task that this worker runs, or was about to, is cancelled
"""

from __future__ import annotations

from typing import Any

import msgspec

from ringmere.core.errors import RingmereError


class ClientError(RingmereError):
    """Base of what this floor raises."""

    code = "client_error"


class Refused(ClientError):
    """The service refused the request for good.

    ``status`` is the HTTP status, ``code`` the machine code of its problem document (or ``http_<status>``),
    ``problem`` that whole document, empty when it sent none.
    """

    def __init__(self, status: int, code: str, detail: str, problem: dict[str, Any]) -> None:
        super().__init__(f"{code} ({status}): {detail}" if detail else f"{code} ({status})")
        self.status = status
        self.code = code
        self.problem = problem


class Unreachable(ClientError):
    """Nothing answered, or only "not now". ``maybe_done`` says that the last try's fate is unknown."""

    code = "unreachable"

    def __init__(self, detail: str, maybe_done: bool) -> None:
        super().__init__(detail)
        self.maybe_done = maybe_done


class BrokenStream(ClientError):
    """The answer is no event stream of this protocol; reconnecting would bring the same."""

    code = "broken_stream"


class TaskCancelled(ClientError):
    """A task is cancelled: it has not started, or was interrupted. ``reason`` is what was given as one."""

    code = "task_cancelled"

    def __init__(self, session: str, task: str, reason: str | None) -> None:
        super().__init__(f"task {task} of session {session} is cancelled" + (f": {reason}" if reason else ""))
        self.session = session
        self.task = task
        self.reason = reason


def refusal(status: int, body: bytes) -> Refused:
    """Return the refusal that an HTTP answer tells, from its problem document when it has one."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = {}
    code, detail = problem.get("code"), problem.get("detail")
    return Refused(
        status,
        code if isinstance(code, str) else f"http_{status}",
        detail if isinstance(detail, str) else "",
        problem,
    )
