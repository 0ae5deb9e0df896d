"""What a container engine would give a process, by bubblewrap: a root that is read-only, a user without rights, pid 1.

Only the network is the machine's own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import pytest

from support.processes import children

BWRAP, SETPRIV = shutil.which("bwrap"), shutil.which("setpriv")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MORTAL = ("setpriv", "--pdeathsig=SIGKILL", "--", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
"""What runs a command as root so that nothing of it is left when this process, or the first of the command, is killed.

Bubblewrap's own way does not reach a process of another user.
"""
ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "pip.conf", "resolv.conf", "ssl")
"""What programs want of the machine's settings; the rest of the directory is a container's own."""

needs_jail = pytest.mark.skipif(
    (None in (BWRAP, SETPRIV) or os.geteuid() != 0) and os.environ.get("CI") != "true",
    reason="it takes root and bubblewrap, which .ci/run installs",
)


def system(*kept: Path) -> list[str]:
    """Return the flags for a bare system: programs, libraries and ``kept``, nothing of which can be written."""
    flags = ["--ro-bind", "/usr", "/usr", "--dev", "/dev", "--proc", "/proc", "--perms", "0755", "--dir", "/etc"]
    for name in ETC:
        flags += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ("bin", "sbin", "lib", "lib64"):
        flags += ["--symlink", f"usr/{name}", f"/{name}"]
    # The interpreter that runs the tests, where it is not the system's.
    for path in (Path(sys.base_prefix), *kept):
        if not path.is_relative_to("/usr"):
            flags += placed(path, str(path))
    return flags


def placed(source: Path, target: str, *, writable: bool = False) -> list[str]:
    """Return the flags that show ``source`` at ``target``; everybody may pass through what lies above it."""
    above = [str(path) for path in reversed(PurePosixPath(target).parents) if str(path) != "/"]
    way = [word for path in above for word in ("--perms", "0755", "--dir", path)]
    return [*way, "--bind" if writable else "--ro-bind", str(source), target]


def jailed(
    command: Iterable[str],
    flags: Iterable[str],
    environ: Mapping[str, str],
    user: tuple[int, int] = (0, 0),
    cwd: str = "/",
) -> list[str]:
    """Return the command that runs ``command`` as pid 1 and as ``user``, with no capability and no way to any.

    ``flags`` are those of bubblewrap that say what it sees; ``environ`` is all it gets.
    """
    assert BWRAP is not None
    variables = [word for name, value in environ.items() for word in ("--setenv", name, value)]
    uid, gid = user
    return [
        *MORTAL, BWRAP, *flags, "--remount-ro", "/", "--unshare-pid", "--as-pid-1", "--chdir", cwd,
        "--clearenv", *variables, "--",
        str(SETPRIV), f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
        "--no-new-privs", "--", *command,
    ]  # fmt: skip


async def inside(process: asyncio.subprocess.Process) -> int:
    """Return the number that pid 1 of a jail has outside of it; fail when there is none yet."""
    [bwrap] = await children(process.pid)
    [pid] = await children(bwrap)
    return pid


def tmpfs(place: str) -> list[str]:
    """Return the flags for a directory in memory that everybody may write."""
    return ["--perms", "1777", "--tmpfs", place]
