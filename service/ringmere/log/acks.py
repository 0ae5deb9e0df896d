"""JetStream's answers to a publish, and what they mean for the publisher."""

from __future__ import annotations

import re

import msgspec

from ringmere.core.errors import LogUnavailable, PublishUnconfirmed
from ringmere.log.leader import Fault

TOO_LARGE = 10054
WRONG_LAST = 10071
WRONG_LAST_IN_PROCESS = 10164
"""Another conditional publish on the subject is being decided; only a replicated stream says so."""
KEY_IN_PROCESS = 10158
"""A message with the same key is being stored; only a replicated stream says so."""
ROLLUP_REFUSED = 10111
BATCH_HOLDS_DUPLICATE = 10201

_NUMBER = re.compile(r": (\d+)$")


class Ack(msgspec.Struct):
    """One answer. Of a batch ``seq`` is the last row's."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    count: int = 0
    error: Fault | None = None

    @property
    def fault(self) -> int:
        """JetStream's error code, 0 when it took the message."""
        return 0 if self.error is None else self.error.err_code or self.error.code

    @property
    def current(self) -> int | None:
        """The last sequence that a :data:`WRONG_LAST` names."""
        found = _NUMBER.search(self.error.description) if self.error is not None else None
        return int(found[1]) if found else None


_decode = msgspec.json.Decoder(Ack).decode


def read_ack(payload: bytes, stream: str) -> Ack:
    """Return the answer that ``payload`` holds; ``stream`` is who should have given it.

    Raises ``PublishUnconfirmed`` when something else answered: who knows what the stream did.
    """
    try:
        ack = _decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PublishUnconfirmed(f"the answer is no acknowledgement: {error}") from error
    if ack.error is None and (ack.stream != stream or not ack.seq):
        raise PublishUnconfirmed(f"stream {ack.stream or 'unnamed'} acknowledged what was meant for {stream}")
    return ack


def not_stored(ack: Ack) -> LogUnavailable:
    """Return the error for a refusal that is not the publisher's fault."""
    text = ack.error.description if ack.error is not None else "no reason"
    return LogUnavailable(f"JetStream did not store the event: {text} ({ack.fault})")
