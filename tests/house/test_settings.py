"""The README's table of settings is the table of settings."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ringmere.core.limits import Limits
from ringmere.settings import Settings, rows
from ringmere.settings.show import markdown

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- settings: `ringmere settings --markdown` -->", "<!-- end of settings -->"

INNER = {
    "turn_bytes",
    "pages_per_turn",
    "parked_bytes",
    "page_cache",
    "channel_linger",
    "bounds_age",
    "snapshot_reads",
    "snapshot_wait",
    "sweep_first",
    "sweep_max",
}
"""Bounds that follow from the contract or from each other, and are no operator's choice."""


def test_the_readme_has_the_table_as_it_is_generated() -> None:
    text = README.read_text()
    table = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()
    assert table == markdown(), "put the output of `ringmere settings --markdown` into the README"


def test_every_limit_of_an_instance_is_a_setting_or_named_as_an_inner_one() -> None:
    limits = {item.name for item in dataclasses.fields(Limits)}
    settings = {item.name for item in dataclasses.fields(Settings)}
    assert limits - settings == INNER & limits


def test_every_setting_says_what_it_is_in_one_sentence_and_has_its_range_around_its_default() -> None:
    for row in rows():
        assert re.fullmatch(r"[A-Z].*\.", row.help), row.name
        assert (row.low is None) == (row.high is None), row.name
        if row.low is not None and row.high is not None and not (row.zero and row.default == 0):
            assert row.low <= row.default <= row.high, row.name
