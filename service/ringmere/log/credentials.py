"""Credentials files of NATS users: read anew at each connect, so a rotated file is used."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import nkeys
from nats import errors

_JWT = re.compile(rb"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(rb"-----BEGIN USER NKEY SEED-----\s+(\S+)\s+-+END USER NKEY SEED-+")


class CredsFile:
    """A ``.creds`` file. Errors are nats-py's own, so that a file caught in mid-rotation is only tried again."""

    def __init__(self, path: str) -> None:
        self.path = path

    def jwt(self) -> bytes:
        """Return the user's JWT."""
        return self._part(_JWT, "user JWT")

    def sign(self, nonce: str) -> bytes:
        """Return the server's nonce signed with the user's seed, in base64."""
        pair = nkeys.from_seed(bytearray(self._part(_SEED, "user seed")))
        signature = base64.b64encode(pair.sign(nonce.encode()))
        pair.wipe()
        return signature

    def _part(self, pattern: re.Pattern[bytes], what: str) -> bytes:
        found = pattern.search(Path(self.path).read_bytes())
        if found is None:
            raise errors.Error(f"there is no {what} in {self.path}")
        return found.group(1)
