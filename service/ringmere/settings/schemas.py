"""``--schemas DIR``: the schemas of event types, one file a type, read as a whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringmere.core.errors import MalformedBody
from ringmere.core.limits import MAX_SCHEMA_BYTES, MAX_SCHEMAS
from ringmere.core.strict_json import load as load_json

if TYPE_CHECKING:
    from ringmere.core.schemas import TypeSchemas


class SchemasUnusable(Exception):
    """The directory cannot be used as it is; the text says which file, and why."""


def load_schemas(directory: Path, *, strict: bool) -> TypeSchemas:
    """Read and compile all ``*.json`` of a directory but hidden ones; raises :class:`SchemasUnusable`."""
    # Only an instance that checks types pays for the compiler: its import takes longer than all others.
    from ringmere.core.schemas import BadSchema, TypeSchemas

    try:
        return TypeSchemas(_read(directory), strict=strict)
    except BadSchema as error:
        raise SchemasUnusable(f"{directory}: {error}") from None
    except OSError as error:
        raise SchemasUnusable(f"{error.filename or directory}: {error.strerror or error}") from None


def _read(directory: Path) -> dict[str, Any]:
    # Kubernetes shows a ConfigMap as links to files in a hidden directory.
    paths = sorted(path for path in directory.iterdir() if path.suffix == ".json" and not path.name.startswith("."))
    if len(paths) > MAX_SCHEMAS:
        raise SchemasUnusable(f"{directory}: {len(paths)} files are more than the {MAX_SCHEMAS} that are allowed")
    return {path.name: _document(path) for path in paths}


def _document(path: Path) -> Any:
    size = path.stat().st_size
    if size > MAX_SCHEMA_BYTES:
        raise SchemasUnusable(f"{path}: {size} bytes are more than the limit of {MAX_SCHEMA_BYTES}")
    try:
        return load_json(path.read_bytes())
    except MalformedBody as error:
        raise SchemasUnusable(f"{path}: {error}") from None
