"""``GET /schemas``: what the data of each event type must be (contract 2.10)."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from ringmere.core.errors import SchemaNotFound
from ringmere.http.options import Door
from ringmere.http.problems import json_response

SCHEMA_TYPE = "application/schema+json"


async def list_schemas(door: Door, request: web.BaseRequest) -> web.Response:
    """List the types that have a schema, and where it is; ``strict`` says whether others are refused."""
    schemas = door.options.schemas()
    rows = [] if schemas is None else [{"type": type, "url": _url(type)} for type in schemas.types]
    return json_response({"schemas": rows, "strict": schemas is not None and schemas.strict})


async def show_schema(door: Door, request: web.BaseRequest, type: str) -> web.Response:
    """Show the schema of one type as the operator wrote it."""
    schemas = door.options.schemas()
    if schemas is None:
        raise SchemaNotFound("this instance has no schemas")
    return json_response(schemas.document(type), headers={"Content-Type": SCHEMA_TYPE})


def _url(type: str) -> str:
    return f"/schemas/{quote(type, safe='')}"
