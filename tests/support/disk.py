"""A disk that can be filled up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[Path]:
    """Mount a small file system; skip the test where that is not permitted, except in CI."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        reason = f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill_up(path: Path) -> None:
    """Write a file until no byte fits any more."""
    handle = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(handle, bytes(65536))
    except OSError:
        return
    finally:
        os.close(handle)
