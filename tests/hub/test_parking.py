"""Parked live messages: bounded, in order, and forgotten once the log has answered for them."""

from __future__ import annotations

from ringmere.hub.parking import Parked, Parking


def message(seq: int, size: int = 10, time_ns: int = 0) -> Parked:
    return Parked(seq, seq - 1, time_ns or seq, b"x" * size)


def test_messages_come_back_in_order_and_the_place_is_empty_then() -> None:
    parking = Parking(100)
    parking.add(message(1))
    parking.add(message(2))
    assert parking.take() == ([message(1), message(2)], False)
    assert parking.take() == ([], False)


def test_what_does_not_fit_is_not_kept_but_said() -> None:
    parking = Parking(25)
    for seq in (1, 2, 3):
        parking.add(message(seq))
    assert parking.take() == ([message(1), message(2)], True)
    parking.add(message(4))
    assert parking.take() == ([message(4)], False)


def test_what_the_log_has_answered_for_is_forgotten_but_not_what_came_later_or_is_of_another_log() -> None:
    parking = Parking(1000)
    parking.add(message(5))
    parking.add(message(2, time_ns=99))
    parking.add(message(9))
    parking.forget_answered(2, last=4, time_ns=4)
    assert parking.take()[0] == [message(2, time_ns=99), message(9)]
