"""The registry of close reasons."""

from __future__ import annotations

import re

from ringmere.core.reasons import CloseReason


def test_numbers_and_labels_are_unique() -> None:
    assert len({reason.number for reason in CloseReason}) == len(CloseReason)
    assert len({reason.label for reason in CloseReason}) == len(CloseReason)


def test_every_number_is_an_application_close_code_and_every_label_a_metric_label() -> None:
    for reason in CloseReason:
        assert 4000 <= reason.number <= 4999
        assert re.fullmatch(r"[a-z_]+", reason.label)


def test_the_numbers_that_the_contract_names_do_not_move() -> None:
    assert [reason.number for reason in (
        CloseReason.QUEUE_OVERFLOW, CloseReason.SESSION_CLOSED, CloseReason.DRAINING, CloseReason.LIMIT,
    )] == [4001, 4002, 4003, 4008]  # fmt: skip


def test_only_the_end_of_a_session_forbids_to_come_back() -> None:
    assert [reason for reason in CloseReason if not reason.may_reconnect] == [CloseReason.SESSION_CLOSED]
