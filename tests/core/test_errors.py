"""The error tree: codes are stable and the drawing at its top is the tree."""

from __future__ import annotations

import re

from ringmere.core import errors
from ringmere.core.errors import EventTooLarge, InvalidEvent, RingmereError, StreamShapeDiffers, Unavailable


def tree(kind: type[RingmereError]) -> list[type[RingmereError]]:
    own = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [kind, *(node for child in own for node in tree(child))]


def test_every_error_of_the_module_is_drawn_once_and_nothing_else_is() -> None:
    drawn = re.findall(r"^    [│├└─ ]*([A-Z][A-Za-z]+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(node.__name__ for node in tree(RingmereError))


def test_codes_are_unique_machine_words() -> None:
    codes = [node.code for node in tree(RingmereError) if "code" in vars(node)]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_errors_carry_what_a_door_needs() -> None:
    assert InvalidEvent("x", 3).index == 3
    assert (EventTooLarge(11, 10).size, EventTooLarge(11, 10).limit) == (11, 10)
    assert Unavailable("x", 2.5).retry_after == 2.5
    assert StreamShapeDiffers("S", ["a", "b"]).differences == ["a", "b"]
