"""The error tree. Each leaf has a stable machine ``code``; the doors translate codes, never texts.

::

    RingmereError
    ├── InvalidInput            the caller's fault; nothing was changed
    │   ├── InvalidSessionId
    │   ├── MalformedBody       the text is not acceptable JSON
    │   ├── InvalidEvent        JSON, but not an event
    │   │   ├── SchemaViolation     an event, but not one of its type
    │   │   ├── UnknownType
    │   │   └── InvalidCloudEvent   JSON, but not a CloudEvent
    │   ├── InvalidBatch
    │   ├── InvalidKey
    │   ├── InvalidExpectation
    │   ├── InvalidParameter
    │   ├── InvalidSnapshot     JSON, but not a snapshot
    │   ├── TooManySessions
    │   │   └── MatchTooBroad
    │   ├── InvalidCancel       JSON, but not a cancel
    │   └── EventTooLarge
    │       └── SnapshotTooLarge
    ├── Conflict                the state of the log says no; nothing was changed
    │   ├── WrongLastEventId
    │   ├── KeyReused
    │   ├── SessionNotFound
    │   ├── SnapshotNotFound
    │   ├── UnknownEventId      no event of the session that a state could cover
    │   ├── NewerSnapshot
    │   ├── SchemaNotFound
    │   ├── StreamNotFound
    │   └── StreamMatches
    ├── Unavailable             try again later; carries ``retry_after`` in seconds
    │   ├── LogUnavailable      not stored
    │   ├── PublishUnconfirmed  fate unknown
    │   ├── PublishOverloaded
    │   ├── SubscriberLimitExceeded
    │   └── Draining
    ├── FrameTooLong            what a server sends does not fit the decoder's buffer
    └── StartRefused            the process must not serve like this
        ├── StreamShapeDiffers
        └── LogRefused          credentials, JetStream off, server too old
"""

from __future__ import annotations


class RingmereError(Exception):
    """Base of all errors that callers are meant to handle; ``code`` is stable, the text is for people."""

    code = "internal_error"


class InvalidInput(RingmereError):
    """The request cannot be accepted as it is; nothing was changed."""

    code = "invalid_input"


class InvalidSessionId(InvalidInput):
    """A session or task id outside ``[A-Za-z0-9_:@~=-]{1,128}`` (contract 1.7)."""

    code = "invalid_session_id"


class MalformedBody(InvalidInput):
    """The body is not JSON as the service accepts it: UTF-8, finite numbers, no repeated keys, depth ≤ 64."""

    code = "malformed_body"


class InvalidEvent(InvalidInput):
    """Valid JSON that is not an event of contract 2.1; ``index`` is its row in a batch."""

    code = "invalid_event"

    def __init__(self, detail: str, index: int | None = None) -> None:
        super().__init__(detail if index is None else f"event {index}: {detail}")
        self.index = index


class SchemaViolation(InvalidEvent):
    """An event whose data does not fit its type; ``pointer`` (RFC 6901, into the event) leads to the fault."""

    code = "schema_violation"

    def __init__(self, pointer: str, fault: str, index: int | None = None) -> None:
        super().__init__(f"at {pointer}: {fault}", index)
        self.pointer = pointer


class UnknownType(InvalidEvent):
    """An event of a type that has no schema, where each type must have one."""

    code = "unknown_type"


class InvalidCloudEvent(InvalidEvent):
    """What is declared to be a CloudEvent is none of version 1.0."""

    code = "invalid_cloudevent"


class InvalidBatch(InvalidInput):
    """A batch of no events or of more than 1000."""

    code = "invalid_batch"


class InvalidKey(InvalidInput):
    """An idempotency key outside 1..255 visible ASCII characters (contract 2.3)."""

    code = "invalid_key"


class InvalidExpectation(InvalidInput):
    """``Expected-Last-Event-Id`` is not an event id (contract 2.4)."""

    code = "invalid_expected_last_event_id"


class InvalidParameter(InvalidInput):
    """A query parameter has a value outside its range; ``code`` names the parameter."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class TooManySessions(InvalidInput):
    """More sessions than one stream may follow (contract 7.1)."""

    code = "too_many_sessions"


class MatchTooBroad(TooManySessions):
    """More sessions match a prefix than one stream may follow (contract 7.1)."""

    code = "match_too_broad"


class InvalidCancel(InvalidInput):
    """Valid JSON that is not a cancel of contract 10.3."""

    code = "invalid_cancel"


class EventTooLarge(InvalidInput):
    """An event or request above its size limit in bytes; nothing was sent to NATS (contract 2.6)."""

    code = "event_too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes are more than the limit of {limit}")
        self.size = size
        self.limit = limit


class InvalidSnapshot(InvalidInput):
    """Valid JSON that is not a snapshot of contract 10.1."""

    code = "invalid_snapshot"


class SnapshotTooLarge(EventTooLarge):
    """A snapshot whose state is above its size limit in bytes; nothing was stored (contract 10.1)."""

    code = "snapshot_too_large"


class Conflict(RingmereError):
    """The log's state forbids the request; nothing was changed."""

    code = "conflict"


class WrongLastEventId(Conflict):
    """The session's last event is another than expected; ``current`` is its id, 0 when there is none."""

    code = "wrong_last_event_id"

    def __init__(self, current: int) -> None:
        super().__init__(f"the session's last event id is {current}")
        self.current = current


class KeyReused(Conflict):
    """The idempotency key was used for another body inside the duplicate window (contract 2.3)."""

    code = "key_reused"


class SessionNotFound(Conflict):
    """The session is unknown and ``require_session`` is on (contract 3.6)."""

    code = "session_not_found"


class SnapshotNotFound(Conflict):
    """The session has no snapshot, or one of a log that is gone (contract 10.1)."""

    code = "snapshot_not_found"


class UnknownEventId(Conflict):
    """No state can cover the log up to that id: it is not, not yet, or not any more one of the session's."""

    code = "unknown_event_id"


class NewerSnapshot(Conflict):
    """The stored snapshot covers more; ``current`` is the id that it reaches to (contract 10.1)."""

    code = "newer_snapshot"

    def __init__(self, current: int) -> None:
        super().__init__(f"the stored snapshot covers everything up to {current}")
        self.current = current


class SchemaNotFound(Conflict):
    """No schema is known for the type."""

    code = "schema_not_found"


class StreamNotFound(Conflict):
    """No instance has an open stream of many sessions with this id (contract 7.5)."""

    code = "stream_not_found"


class StreamMatches(Conflict):
    """The stream follows what matches a prefix, so its sessions are not named one by one (contract 7.5)."""

    code = "stream_matches"


class Unavailable(RingmereError):
    """Not now. ``retry_after`` says after how many seconds a new try makes sense."""

    code = "unavailable"

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class LogUnavailable(Unavailable):
    """The log did not take or give anything; an event of this request is not stored."""

    code = "log_unavailable"


class PublishUnconfirmed(Unavailable):
    """The acknowledgement did not come: the event may be stored. Safe to retry with its key only."""

    code = "publish_unconfirmed"


class PublishOverloaded(Unavailable):
    """Too many publishes are in flight on this instance; nothing of this request was sent."""

    code = "publish_overloaded"


class SubscriberLimitExceeded(Unavailable):
    """The session, or the instance, has all the readers it may have (contract 6.9)."""

    code = "subscriber_limit_exceeded"


class Draining(Unavailable):
    """The instance is going away and takes no new streams (contract 8.3)."""

    code = "draining"


class FrameTooLong(RingmereError):
    """A stream that is being decoded holds a line or an event of more than ``limit`` bytes."""

    code = "frame_too_long"

    def __init__(self, limit: int) -> None:
        super().__init__(f"a line or an event of the stream is longer than {limit} bytes")
        self.limit = limit


class StartRefused(RingmereError):
    """The process must not serve with what it found; the text says what to do."""

    code = "start_refused"


class StreamShapeDiffers(StartRefused):
    """A stream exists with another shape than the settings ask for (contract 1.6)."""

    code = "stream_shape_differs"

    def __init__(self, stream: str, differences: list[str]) -> None:
        super().__init__(f"stream {stream} has another shape: {'; '.join(differences)}")
        self.stream = stream
        self.differences = differences


class LogRefused(StartRefused):
    """NATS answers, but not in a way that could work: credentials, JetStream off, too old."""

    code = "log_refused"
