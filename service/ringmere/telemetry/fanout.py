"""One observer for several: the hub tells one, each one that listens hears it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any

from ringmere.hub.observer import Observer

METHODS = tuple(name for name, value in vars(Observer).items() if isfunction(value))
"""What an observer is told."""


class Fanout(Observer):
    """Passes each call on to those of ``observers`` that have their own method for it, in order.

    What nobody listens to stays the no-op it is, and what one listens to is bound to that one directly, so
    a call costs nothing beyond the work of its listeners.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        for name in METHODS:
            heard = [getattr(each, name) for each in observers if _listens(each, name)]
            if len(heard) == 1:
                setattr(self, name, heard[0])
            elif heard:
                setattr(self, name, _chain(heard))


def _listens(observer: Observer, name: str) -> bool:
    return name in vars(observer) or getattr(type(observer), name) is not getattr(Observer, name)


def _chain(calls: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def tell(*args: Any, **named: Any) -> None:
        for call in calls:
            call(*args, **named)

    return tell
