"""What an instance asks of its interpreter."""

from __future__ import annotations

import gc

from ringmere.process import COLLECTOR, calm_collector


class Reader:
    """Stands for one of the many objects that an instance with many readers holds."""


def test_readers_that_come_do_not_set_off_a_full_collection() -> None:
    full: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(phase)

    usual = gc.get_threshold()
    calm_collector()
    gc.callbacks.append(note)
    try:
        readers = [Reader() for _ in range(500_000)]
        assert gc.get_threshold() == COLLECTOR
        assert not full, len(readers)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*usual)
        gc.unfreeze()
