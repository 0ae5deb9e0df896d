"""Schemas of event types: JSON Schema 2020-12, compiled once, asked for each event that is published.

A reference leads into the same set of documents, by file name or ``$id``, and nowhere else. Patterns are matched in
time linear in the text, so look-around and back-references do not compile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from jsonschema_rs import Draft202012, Draft202012Validator, RegexOptions, Registry, ValidationError

from ringmere.core.errors import SchemaNotFound, SchemaViolation, UnknownType
from ringmere.core.event import type_fault
from ringmere.core.limits import MAX_FAULT_CHARS, MAX_POINTER_CHARS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPE_KEYWORD = "x-type"
"""Names the event type in a schema whose file cannot be named after it."""
SUFFIX = ".json"

_BASE = "ringmere:///schemas/"
_VALUE = "the value"
"""Stands for an event's values in what is told of a fault."""
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadSchema(ValueError):
    """A document that cannot be a schema here; the text names it and says why."""


class TypeSchemas:
    """The schemas of all types that have one. ``strict``: other types are refused."""

    def __init__(self, documents: Mapping[str, Any], *, strict: bool = False) -> None:
        """Compile ``documents``, which are decoded JSON by file name; raises :class:`BadSchema`."""
        self.strict = strict
        registry = _registry(documents)
        names = _names_by_type(documents)
        self._documents = {type: documents[name] for type, name in names.items()}
        self._validators = {type: _compiled(name, documents[name], registry) for type, name in names.items()}

    @property
    def types(self) -> list[str]:
        """The types that have a schema, in order."""
        return list(self._documents)

    def document(self, type: str) -> Any:
        """Return a type's schema as it was written; raises ``SchemaNotFound``."""
        try:
            return self._documents[type]
        except KeyError:
            raise SchemaNotFound("the type has no schema") from None

    def check(self, type: str, data: Any, index: int | None = None) -> None:
        """Raise ``SchemaViolation`` for data that does not fit its type, ``UnknownType`` for one without when strict.

        ``index`` is the row in a batch. No value of the event is in the text, names in it may be.
        """
        validator = self._validators.get(type)
        if validator is not None:
            try:
                validator.validate(data)
            except ValidationError as error:
                pointer = pointer_to(["data", *error.instance_path])
                raise SchemaViolation(pointer, error.message[:MAX_FAULT_CHARS], index) from None
        elif self.strict:
            raise UnknownType(f"type {type!r} has no schema", index)


def pointer_to(path: Sequence[str | int]) -> str:
    """Return a path as a JSON pointer (RFC 6901); one that is too long to be told ends at a place further out."""
    pointer = ""
    for step in path:
        longer = f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"
        if len(longer) > MAX_POINTER_CHARS:
            break
        pointer = longer
    return pointer


def _names_by_type(documents: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for name, document in sorted(documents.items()):
        type = _type_of(name, document)
        if type in names:
            raise BadSchema(f"{name}: type {type!r} has a schema already, {names[type]}")
        names[type] = name
    return dict(sorted(names.items()))


def _type_of(name: str, document: Any) -> str:
    """Return the type that a document is for: what it says itself, else what its file's name spells."""
    type = document.get(TYPE_KEYWORD) if isinstance(document, dict) else None
    if type is None:
        stem = name.removesuffix(SUFFIX)
        if _STRAY_PERCENT.search(stem):
            raise BadSchema(f"{name}: a % that stands for itself is %25")
        try:
            type = unquote(stem, errors="strict")
        except UnicodeDecodeError:
            raise BadSchema(f"{name}: the name's percent-encoding is not UTF-8") from None
    if fault := type_fault(type):
        raise BadSchema(f"{name}: no event can have it: {fault}")
    return str(type)


def _registry(documents: Mapping[str, Any]) -> Registry:
    resources: dict[str, Any] = {}
    for name, document in documents.items():
        if not isinstance(document, dict | bool):
            raise BadSchema(f"{name}: a schema is an object, true or false")
        resources[_BASE + quote(name)] = document
        if isinstance(document, dict):
            if document.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
                raise BadSchema(f"{name}: $schema must be {DIALECT}")
            own = document.get("$id")
            if isinstance(own, str):
                if own in resources:
                    raise BadSchema(f"{name}: another schema has its $id")
                resources[own] = document
    try:
        return Registry(list(resources.items()), draft=Draft202012, retriever=_refuse)
    except ValueError as error:
        raise BadSchema(_first_line(error)) from None


def _compiled(name: str, document: Any, registry: Registry) -> Draft202012Validator:
    try:
        return Draft202012Validator(
            document,
            registry=registry,
            base_uri=_BASE + quote(name),
            retriever=_refuse,
            pattern_options=RegexOptions(),
            mask=_VALUE,
        )
    except ValidationError as error:
        raise BadSchema(f"{name}: at {pointer_to(error.instance_path) or 'its root'}: {error.message}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _refuse(uri: str) -> NoReturn:
    """Fetch nothing: a schema that needs more than its directory is a bad one."""
    raise LookupError("references lead into the directory only")
