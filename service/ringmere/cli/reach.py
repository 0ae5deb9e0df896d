"""The log itself, for commands that speak with NATS and not with a gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringmere.core.errors import InvalidParameter
from ringmere.settings import Settings, load

if TYPE_CHECKING:
    from ringmere.log.options import ConnectOptions


def reach(flags: Mapping[str, Any]) -> tuple[Settings, ConnectOptions]:
    """Return the settings, and how to reach NATS by them: the same way as ``ringmere serve`` with these flags.

    Raises ``InvalidParameter`` when an embedded server is meant that was never started.
    """
    from ringmere.embedded import address_in
    from ringmere.settings.derive import connect_options

    settings = load(flags, os.environ).settings
    address = None
    if settings.embedded:
        address = address_in(Path(settings.data_dir))
        if address is None:
            raise InvalidParameter("no_embedded", f"no embedded NATS server was ever started in {settings.data_dir}")
    return settings, connect_options(settings, os.environ, address)
