"""What goes in and out of the routes, as JSON Schema: the components of ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from ringmere.core.limits import MAX_KEY_CHARS, MAX_REASON_CHARS, MAX_TYPE_CHARS
from ringmere.http.problems import PROBLEMS

ID = {"type": "integer", "minimum": 0, "maximum": (1 << 53) - 1}
TEXT = {"type": "string"}
REASON = {"type": "string", "minLength": 1, "maxLength": MAX_REASON_CHARS}
FLAG = {"type": "string", "enum": ["0", "1"]}
SESSION = {"type": "string", "pattern": "^[A-Za-z0-9_:@~=-]{1,128}$"}


def ref(name: str) -> dict[str, Any]:
    """Return a reference to one of the :data:`SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def an_object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def an_array(items: dict[str, Any], **bounds: int) -> dict[str, Any]:
    """Return the schema of an array; ``bounds`` are keywords like ``maxItems``."""
    return {"type": "array", "items": items, **bounds}


SCHEMAS: dict[str, dict[str, Any]] = {
    "Event": an_object(
        {"type": {"type": "string", "minLength": 1, "maxLength": MAX_TYPE_CHARS}, "data": {}},
        {
            "originatorClientId": TEXT,
            "promptId": TEXT,
            "_meta": {"type": "object"},
            "terminal": {"type": "boolean"},
            "key": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS},
        },
    ),
    "CloudEvent": an_object(
        {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
            "type": {"type": "string", "minLength": 1, "maxLength": MAX_TYPE_CHARS},
        },
        {"time": {"type": "string", "format": "date-time"}, "data": {}, "data_base64": TEXT},
    ),
    "Published": an_object({"id": ID, "sessionId": SESSION, "duplicate": {"type": "boolean"}}),
    "Degraded": an_object({"id": {"type": "null"}, "degraded": {"const": True}}),
    "PublishedBatch": an_object(
        {
            "sessionId": SESSION,
            "results": an_array(
                {
                    "oneOf": [
                        an_object({"id": ID, "duplicate": {"type": "boolean"}}),
                        an_object({"code": TEXT, "detail": TEXT}),
                        ref("Degraded"),
                    ]
                }
            ),
        }
    ),
    "Session": an_object(
        {
            "sessionId": SESSION,
            "firstEventId": ID,
            "lastEventId": ID,
            "events": {"type": "integer"},
            "closed": {"type": "boolean"},
            "lastEventAt": {"type": "integer", "description": "milliseconds since 1970, by the log's clock"},
        },
        {
            "readers": an_array({"type": "object"}),
            "snapshot": an_object(
                {"lastEventId": ID, "final": {"type": "boolean"}, "updatedAt": {"type": "integer"}},
            ),
        },
    ),
    "ShownSession": an_object(
        {
            "sessionId": SESSION,
            "firstEventId": {"type": ["integer", "null"]},
            "lastEventId": {"type": ["integer", "null"]},
            "events": {"type": "integer"},
            "closed": {"type": "boolean"},
            "lastEventAt": {"type": ["integer", "null"]},
            "evictions": {"type": "integer"},
            "readers": an_array(ref("SessionReader")),
        },
        {
            "firstEventAt": {"type": "integer", "description": "milliseconds since 1970, as all times here"},
            "idleSeconds": {"type": "number", "description": "since the last event"},
            "snapshot": an_object(
                {"lastEventId": ID, "final": {"type": "boolean"}, "updatedAt": {"type": "integer"}},
            ),
        },
    ),
    "SessionReader": an_object(
        {
            "streamId": TEXT,
            "client": {"type": ["string", "null"]},
            "transport": {"type": ["string", "null"], "description": "null before its headers are out"},
            "state": TEXT,
            "positionId": ID,
            "behindEvents": {"type": ["integer", "null"], "description": "null when it is more than memory holds"},
            "behindSeconds": {"type": "number"},
            "backlogEvents": {"type": "integer"},
            "backlogBytes": {"type": "integer"},
            "maxQueued": {"type": "integer"},
            "warned": {"type": "boolean"},
            "ageSeconds": {"type": "number"},
            "openedAt": {"type": "integer"},
        },
        {"sessions": {"type": "integer", "description": "how many the stream follows, this one too"}},
    ),
    "SessionList": an_object({"sessions": an_array(ref("Session"))}, {"next": SESSION}),
    "Reader": an_object(
        {
            "sessionId": TEXT,
            "streamId": TEXT,
            "transport": TEXT,
            "state": TEXT,
            "positionId": ID,
            "backlogEvents": {"type": "integer"},
            "backlogBytes": {"type": "integer"},
            "maxQueued": {"type": "integer"},
            "warned": {"type": "boolean"},
            "ageSeconds": {"type": "number"},
        },
        {
            "client": {"type": ["string", "null"]},
            "lastEventId": ID,
            "behindEvents": {"type": ["integer", "null"]},
            "behindSeconds": {"type": "number"},
            "sessionEvictions": {"type": "integer"},
            "worker": {"type": "integer"},
        },
    ),
    "ReaderList": an_object({"readers": an_array(ref("Reader"))}),
    "Change": an_object(
        {},
        {"add": an_array(SESSION), "drop": an_array(SESSION), "from": {"type": "string", "enum": ["live", "start"]}},
    ),
    "Changed": an_object({"sessions": an_array(SESSION), "lastEventId": TEXT, "url": TEXT}),
    "SchemaList": an_object(
        {"schemas": an_array(an_object({"type": TEXT, "url": TEXT})), "strict": {"type": "boolean"}}
    ),
    "Cancel": an_object({}, {"reason": REASON}),
    "Cancelled": an_object(
        {"sessionId": SESSION, "taskId": SESSION, "cancelled": {"type": "boolean"}},
        {
            "requestedAt": {"type": "integer", "description": "milliseconds since 1970"},
            "reason": REASON,
        },
    ),
    "Snapshot": an_object({"lastEventId": ID, "state": {}}, {"final": {"type": "boolean"}}),
    "StoredSnapshot": an_object(
        {"sessionId": SESSION, "lastEventId": ID, "final": {"type": "boolean"}, "eventEpoch": TEXT}
    ),
    "ReadSnapshot": an_object(
        {
            "sessionId": SESSION,
            "lastEventId": ID,
            "state": {},
            "final": {"type": "boolean"},
            "eventEpoch": TEXT,
            "updatedAt": {"type": "integer", "description": "milliseconds since 1970, by the log's clock"},
        }
    ),
    "Fresh": an_object({"sessionId": SESSION}),
    "State": an_object(
        {"status": TEXT},
        {
            "logConnected": {"type": "boolean"},
            "draining": {"type": "boolean"},
            "cancelWaiters": {"type": "integer"},
            "logDegraded": an_array({"type": "integer"}),
            "version": TEXT,
            "worker": {"type": "integer"},
        },
    ),
    "Capabilities": an_object({"v": {"const": 1}, "features": an_array(TEXT)}),
    "Problem": an_object(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": sorted(PROBLEMS)},
        },
        {
            "detail": TEXT,
            "index": {"type": "integer", "description": "the row of a batch"},
            "pointer": {
                "type": "string",
                "description": "JSON pointer into the event, to what does not fit its schema",
            },
            "size": {"type": "integer"},
            "limit": {"type": "integer"},
            "lastEventId": ID,
        },
    ),
}
