"""Reads ``docker-compose.yml`` as the engine would, and runs its services bare.

A service keeps its command, environment, files, user and limits; it gets an address of 127.0.0.0/8 of its own, which
stands in for 0.0.0.0 and, by ``/etc/hosts``, for its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from dockerfile_parse import DockerfileParser

from ringmere.embedded import server_binary
from support.jail import PATH, inside, jailed, placed, system, tmpfs
from support.nats import eventually

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "ops" / "docker" / "Dockerfile"
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+):-([^}]*)\}|(?=.))")

CHECK_DEADLINE = 30.0
"""Seconds that a health check may take here."""
PROGRAMS = {
    "nats-server": lambda: server_binary(),
    "caddy": lambda: str(Path(sys.executable).with_name("caddy")),
    "ringmere": lambda: str(Path(sys.executable).with_name("ringmere")),
    "prometheus": lambda: shutil.which("prometheus"),
}
"""Where a program of an image is on this machine."""
IMAGE_USERS = {"nats": (0, 0), "prom/prometheus": (65534, 65534)}
"""Whom images run as that are not told otherwise."""
IMAGE_COMMANDS = {"prom/prometheus": ["prometheus"]}


def interpolated(value: Any, environ: Mapping[str, str]) -> Any:
    """Fill in ``${NAME:-default}`` everywhere in ``value``; any other use of ``$`` fails."""
    if isinstance(value, dict):
        return {key: interpolated(inner, environ) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolated(inner, environ) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        dollar, name, default = match.groups()
        assert dollar or name, value
        return dollar or environ.get(name) or default

    return VARIABLE.sub(fill, value)


def read(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the file, with variables filled in."""
    return interpolated(yaml.safe_load(FILE.read_text()), environ or {})


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield source, target and whether it can be written, for each volume."""
    for volume in service.get("volumes", []):
        source, target, *mode = volume.split(":")
        yield source, target, mode != ["ro"]


def image_settings() -> tuple[list[str], list[str], tuple[int, int], dict[str, str]]:
    """Return entry point and command, health check, user and variables of the image that is built here."""
    parser = DockerfileParser(path=str(DOCKERFILE), cache_content=True)
    last: dict[str, str] = {row["instruction"]: row["value"] for row in parser.structure}
    uid, gid = last["USER"].split(":")
    check = json.loads(last["HEALTHCHECK"].split("CMD", 1)[1])
    variables = {name: value for name, value in parser.envs.items() if name != "PATH"}
    return json.loads(last["ENTRYPOINT"]) + json.loads(last["CMD"]), check, (int(uid), int(gid)), variables


class Service:
    """One service as a process. ``address`` is its own, ``directory`` takes its log and its named volumes."""

    def __init__(self, name: str, spec: Mapping[str, Any], stack: Stack) -> None:
        self.name = name
        self.spec = spec
        self.stack = stack
        self.address = stack.addresses[name]
        self.directory = stack.directory / name
        self.directory.mkdir()
        self.log = self.directory / "log"
        self.process: asyncio.subprocess.Process | None = None
        image, check, user, variables = image_settings()
        if self.spec["image"].startswith("ringmere"):
            self.command, self.check, self.user, environ = image, check, user, variables
        else:
            base = self.spec["image"].rsplit(":", 1)[0]
            self.command = IMAGE_COMMANDS.get(base, []) + list(self.spec["command"])
            self.check = self.spec["healthcheck"]["test"][1:]
            named = self.spec.get("user")
            self.user = (int(named.split(":")[0]), int(named.split(":")[1])) if named else IMAGE_USERS[base]
            environ = {}
        self.environ = {**environ, **self.spec.get("environment", {})}

    def here(self, text: str) -> str:
        """Return a text of the file with this machine's address in the place of the container's."""
        return text.replace("0.0.0.0", self.address).replace("127.0.0.1", self.address)

    def jailed(self, command: list[str]) -> list[str]:
        """Return what runs a command as the service's container would."""
        flags = system(Path(sys.prefix), ROOT / "service")
        flags += placed(self.stack.hosts, "/etc/hosts")
        for place in self.spec.get("tmpfs", []):
            flags += tmpfs(place)
        for source, target, writable in mounts(self.spec):
            flags += placed(self._copied(source), target, writable=writable)
        environ = {name: self.here(self.stack.rewritten.get(name, value)) for name, value in self.environ.items()}
        environ |= {name: self.here(value) for name, value in self.stack.added.items()}
        words = [self.here(word) for word in command]
        program = PROGRAMS[words[0]]() if words[0] in PROGRAMS else words[0]
        assert program is not None, f"there is no {words[0]} here"
        environ |= {"PATH": PATH, "PYTHONPATH": str(ROOT / "service")}
        return jailed([program, *words[1:]], flags, environ, self.user)

    def _copied(self, source: str) -> Path:
        """Return the place of a volume: files of the repository with this service's address, or an empty directory."""
        target = self.directory / source.replace("/", "_")
        if target.exists():
            return target
        if not source.startswith("."):
            target.mkdir()
            os.chown(target, *self.user)
            return target
        place = ROOT / source
        shutil.copytree(place, target) if place.is_dir() else shutil.copy(place, target)
        for file in [target, *target.rglob("*.conf")]:
            if file.is_file():
                text = self.here(file.read_text())
                if file.name.endswith("Caddyfile"):
                    # It would take its port on all addresses, the other services' included.
                    text = re.sub(r"^\{$", f"{{\n\tdefault_bind {self.address}", text, count=1, flags=re.MULTILINE)
                file.write_text(text)
        return target

    async def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as sink:
            self.process = await asyncio.create_subprocess_exec(
                *self.jailed(self.command), stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
            )

    async def well(self) -> bool:
        """Run the health check as the engine would; fail when the service has ended."""
        assert self.process is not None
        assert self.process.returncode is None, f"{self.name}: {self.log.read_text()[-4000:]}"
        check = await asyncio.create_subprocess_exec(
            *self.jailed(self.check), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            return await asyncio.wait_for(check.wait(), CHECK_DEADLINE) == 0
        except TimeoutError:
            check.kill()
            await check.wait()
            return False

    async def end(self, number: signal.Signals, deadline: float = 60.0) -> int:
        """Send a signal to the service itself, as the engine does, and return its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            os.kill(await inside(self.process), number)
        return await asyncio.wait_for(self.process.wait(), deadline)


class Stack:
    """All services of the file that can run here. ``rewritten`` and ``added`` are variables that this machine needs."""

    def __init__(self, directory: Path, left_out: set[str]) -> None:
        self.directory = directory
        services = read()["services"]
        net = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(250) + 1}"
        self.addresses = {name: f"{net}.{number}" for number, name in enumerate(services, 1)}
        self.hosts = directory / "hosts"
        self.hosts.write_text("".join(f"{address} {name}\n" for name, address in self.addresses.items()))
        self.rewritten = {"RINGMERE_TRUSTED_PROXY": "127.0.0.0/8"}
        self.added = {"CADDY_ADMIN": "127.0.0.1:2019", "RINGMERE_DRAIN_GRACE": "1s"}
        self.services = {name: Service(name, spec, self) for name, spec in services.items() if name not in left_out}

    async def start(self, deadline: float = 90.0) -> None:
        """Start each service once those it depends on are as it asks, as ``docker compose up --wait`` does."""
        waiting = dict(self.services)
        while waiting:
            ready = [
                service for service in waiting.values() if not set(service.spec.get("depends_on", {})) & set(waiting)
            ]
            assert ready, f"they wait for each other: {sorted(waiting)}"
            for service in ready:
                await service.start()
            for service in ready:
                await eventually(service.well, f"{service.name} is well", deadline)
                del waiting[service.name]

    async def kill(self) -> None:
        """End all."""
        for service in self.services.values():
            if service.process is not None and service.process.returncode is None:
                service.process.kill()
                await service.process.wait()
