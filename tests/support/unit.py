"""A systemd unit as a text, and its sandbox without systemd: the system calls and addresses it leaves to a process.

Run as ``python -m support.unit FILE COMMAND…`` this module takes on the unit's filter and becomes the command. The
library that speaks of filters exists on Linux only, so it is not imported before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "ops" / "systemd"
UNIT = PLACE / "ringmere.service"
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
LAST_FAMILY = 46
"""The highest address family that Linux knows."""
EPERM, EAFNOSUPPORT = 1, 97
WRITE, EXECUTE = 2, 4
"""Protections of memory."""


def service(file: Path = UNIT) -> dict[str, list[str]]:
    """Return the settings of the section Service by name; an empty value begins its list anew."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in file.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif "=" in line and not line.startswith("#") and section == "[Service]":
            name, value = line.split("=", 1)
            found[name] = [*found.get(name, []), value] if value else [""]
    return found


@cache
def groups() -> Mapping[str, list[str]]:
    """Return what systemd's names for groups of system calls stand for."""
    text = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        word = line.strip()
        if line.startswith("@"):
            name = word
            found[name] = []
        elif word and not word.startswith("#"):
            found[name].append(word)
    return found


def calls(words: str) -> set[str]:
    """Return the system calls that a value of ``SystemCallFilter=`` names."""
    names: set[str] = set()
    for word in words.split():
        names |= calls(" ".join(groups()[word])) if word.startswith("@") else {word}
    return names


def allowed(settings: Mapping[str, list[str]]) -> set[str]:
    """Return the system calls that the unit's filter leaves."""
    left = calls("@default")
    for value in settings["SystemCallFilter"]:
        left = left - calls(value[1:]) if value.startswith("~") else left | calls(value)
    return left


def take_on(settings: Mapping[str, list[str]]) -> None:
    """Forbid this process, and all it becomes, what the unit forbids. There is no way back."""
    import pyseccomp

    _forbid_families_and_code(settings)
    only = pyseccomp.SyscallFilter(pyseccomp.ERRNO(EPERM))
    for name in allowed(settings):
        # Some names are of other processors.
        if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
            only.add_rule(pyseccomp.ALLOW, name)
    only.load()


def _forbid_families_and_code(settings: Mapping[str, list[str]]) -> None:
    import pyseccomp

    [families] = settings["RestrictAddressFamilies"]
    kept = {FAMILIES[name] for name in families.split()}
    filter_ = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for family in set(range(LAST_FAMILY + 1)) - kept:
        filter_.add_rule(pyseccomp.ERRNO(EAFNOSUPPORT), "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    if settings["MemoryDenyWriteExecute"] == ["yes"]:
        both = WRITE | EXECUTE
        filter_.add_rule(pyseccomp.ERRNO(EPERM), "mmap", pyseccomp.Arg(2, pyseccomp.MASKED_EQ, both, both))
        for name in ("mprotect", "pkey_mprotect"):
            filter_.add_rule(pyseccomp.ERRNO(EPERM), name, pyseccomp.Arg(2, pyseccomp.MASKED_EQ, EXECUTE, EXECUTE))
    filter_.load()


if __name__ == "__main__":
    take_on(service(Path(sys.argv[1])))
    os.execvp(sys.argv[2], sys.argv[2:])
