"""The schemas in force: read at the start, and again when the operator says that they have changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from ringmere.core.errors import StartRefused
from ringmere.settings.schemas import SchemasUnusable, load_schemas
from ringmere.settings.table import Settings

if TYPE_CHECKING:
    from ringmere.core.schemas import TypeSchemas

logger = structlog.get_logger("ringmere")


class SchemaKeeper:
    """Holds the schemas of ``--schemas``; :attr:`current` is None without that setting."""

    def __init__(self, settings: Settings) -> None:
        """Read them. Raises ``StartRefused`` when they cannot be used."""
        self._directory = Path(settings.schemas).absolute()
        self._strict = settings.schemas_strict
        self.current: TypeSchemas | None = None
        if settings.schemas:
            try:
                self.current = self._load()
            except SchemasUnusable as error:
                raise StartRefused(f"--schemas: {error}") from None
            logger.info("schemas_loaded", types=len(self.current.types))

    async def follow(self, changed: asyncio.Event) -> None:
        """Read them again each time that ``changed`` is set, for ever. What cannot be used changes nothing."""
        while True:
            await changed.wait()
            changed.clear()
            try:
                self.current = await asyncio.to_thread(self._load)
            except SchemasUnusable as error:
                logger.error("schemas_kept", reason=str(error))
            else:
                logger.info("schemas_loaded", types=len(self.current.types))

    def _load(self) -> TypeSchemas:
        return load_schemas(self._directory, strict=self._strict)
