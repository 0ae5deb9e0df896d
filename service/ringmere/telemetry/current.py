"""The seam between traces and the other eyes: how they learn what belongs to which trace."""

from __future__ import annotations

from collections.abc import Callable

CurrentTrace = Callable[[], str | None]
"""Returns the id (32 hex digits) of the sampled trace that what is being observed belongs to, None outside of one."""


def no_trace() -> None:
    """Stand in where there are no traces."""
