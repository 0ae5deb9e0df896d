"""The proxies that are shipped, each as a real process in front of instances, with ports and files of a test's own.

What a test changes in the shipped files is where things are, and, if it asks for that, their patience.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ringmere.embedded import free_port
from ringmere.settings.kinds import DURATION
from support.certificates import Authority
from support.gateway import clean_env
from support.nats import eventually
from support.raw_http import fetch

SHIPPED = Path(__file__).resolve().parents[2] / "ops" / "proxy"
FILES = {"nginx": SHIPPED / "nginx.conf", "haproxy": SHIPPED / "haproxy.cfg", "caddy": SHIPPED / "Caddyfile"}
NAMES = tuple(FILES)
NGINX_WORKERS = 2
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:{Path(sys.executable).parent}"
_COMMANDS = {name: shutil.which(name, path=_PATH) for name in NAMES}
_TIMEOUT = re.compile(
    r"^\s*((?:proxy_read|proxy_send|send)_timeout|timeout (?:client|server)|read_timeout) (\w+)(?=;?$)", re.MULTILINE
)

needs_proxies = pytest.mark.skipif(
    None in _COMMANDS.values() and os.environ.get("CI") != "true",
    reason="nginx, haproxy or caddy is missing; .ci/run installs them",
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """One that runs: its address without TLS, that with TLS, and the file of who has signed for it."""

    name: str
    url: str
    secure: str
    authority: Path

    @property
    def trust(self) -> ssl.SSLContext:
        """What a client trusts."""
        return ssl.create_default_context(cafile=str(self.authority))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a test's proxy has its files and ports, and what is behind it."""

    directory: Path
    plain: int
    secure: int
    gateways: tuple[str, str]
    configuration: Path
    faster: float

    def configure(self, name: str, changes: Mapping[str, str]) -> None:
        """Write the shipped file with ``changes``, each of which must have something to change."""
        text = _TIMEOUT.sub(lambda found: f"{found[1]} {_shorter(found[2], self.faster)}", FILES[name].read_text())
        for shipped, here in changes.items():
            assert text.count(shipped) == 1, f"{name}: {shipped}"
            text = text.replace(shipped, here)
        self.configuration.write_text(text)


def nginx_paths(directory: Path) -> str:
    """Return what keeps nginx's own files in ``directory``."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in kinds)


def nginx_arguments(configuration: Path) -> list[str]:
    """Return the command line of an nginx that stays a child and writes its errors to its output."""
    # Workers of a root's nginx would run as somebody who may not write into the test's directory.
    user = "user root; " if os.geteuid() == 0 else ""
    settings = f"{user}daemon off; pid {configuration.parent}/pid;"
    return ["-e", "stderr", "-c", str(configuration), "-g", settings]


def _nginx(place: _Place) -> tuple[list[str], dict[str, str], Path]:
    authority = Authority(place.directory)
    certificate, key = authority.issue("proxy")
    changes = {
        "worker_processes auto;": f"worker_processes {NGINX_WORKERS};",
        "http {": f"http {{ {nginx_paths(place.directory)}",
        "listen 8080;": f"listen 127.0.0.1:{place.plain};",
        "listen 8443 ssl http2;": f"listen 127.0.0.1:{place.secure} ssl http2;",
        "/etc/ringmere/tls/certificate.pem": str(certificate),
        "/etc/ringmere/tls/key.pem": str(key),
        "gateway-1:8080": place.gateways[0],
        "gateway-2:8080": place.gateways[1],
    }
    place.configure("nginx", changes)
    return nginx_arguments(place.configuration), {}, authority.file


def _haproxy(place: _Place) -> tuple[list[str], dict[str, str], Path]:
    authority = Authority(place.directory)
    certificate, key = authority.issue("proxy")
    both = place.directory / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    # HAProxy does not start when it may not have as many files as it needs for that.
    place.configure("haproxy", {"maxconn 20000": "maxconn 500"})
    env = {
        "RINGMERE_GATEWAY_1": place.gateways[0],
        "RINGMERE_GATEWAY_2": place.gateways[1],
        "RINGMERE_BIND": f"127.0.0.1:{place.plain}",
        "RINGMERE_BIND_TLS": f"127.0.0.1:{place.secure}",
        "RINGMERE_CERTIFICATE": str(both),
    }
    return ["-db", "-f", str(place.configuration)], env, authority.file


def _caddy(place: _Place) -> tuple[list[str], dict[str, str], Path]:
    place.configure("caddy", {"skip_install_trust": "skip_install_trust\n\tdefault_bind 127.0.0.1"})
    env = {
        "RINGMERE_SITE": f"http://:{place.plain}, https://127.0.0.1:{place.secure}",
        "RINGMERE_GATEWAYS": " ".join(place.gateways),
        "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
        "XDG_DATA_HOME": str(place.directory),
        "XDG_CONFIG_HOME": str(place.directory),
    }
    authority = place.directory / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    return ["run", "--adapter", "caddyfile", "--config", str(place.configuration)], env, authority


_WAYS = {"nginx": _nginx, "haproxy": _haproxy, "caddy": _caddy}


def silences(name: str) -> dict[str, float]:
    """Return the seconds without a byte after which a shipped proxy ends a stream, by setting."""
    return {setting: DURATION.parse(value) for setting, value in _TIMEOUT.findall(FILES[name].read_text())}


def _shorter(value: str, faster: float) -> str:
    return f"{round(1000 * DURATION.parse(value) / faster)}ms"


@asynccontextmanager
async def proxy(name: str, directory: Path, gateways: Sequence[str], *, faster: float = 1) -> AsyncIterator[Proxy]:
    """Run the shipped proxy ``name`` before two instances; its patience with silence is divided by ``faster``.

    Its files are in a new directory in ``directory``.
    """
    here = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
    one, two = (urlsplit(url).netloc for url in gateways)
    place = _Place(here, free_port(), free_port(), (one, two), here / FILES[name].name, faster)
    arguments, env, authority = _WAYS[name](place)
    running = Proxy(name, f"http://127.0.0.1:{place.plain}", f"https://127.0.0.1:{place.secure}", authority)

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", place.secure, ssl=running.trust)
            writer.close()
            return (await fetch(place.plain, "GET", "/readyz")).status == 200
        except OSError:
            return False

    async with process(name, arguments, here / "output", answers, env):
        yield running


@asynccontextmanager
async def process(
    name: str,
    arguments: Sequence[str],
    output: Path,
    answers: Callable[[], Awaitable[bool]],
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[None]:
    """Run the program of the proxy ``name`` from when it ``answers`` to the end of the block."""
    with output.open("wb") as sink:
        started = await asyncio.create_subprocess_exec(
            str(_COMMANDS[name]), *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=clean_env(**(env or {})),
        )  # fmt: skip

    async def serves() -> bool:
        assert started.returncode is None, await asyncio.to_thread(output.read_text)
        return await answers()

    try:
        await eventually(serves, f"{name} answers", 30)
        yield
    finally:
        if started.returncode is None:
            started.terminate()
            try:
                await asyncio.wait_for(started.wait(), 10)
            except TimeoutError:
                started.kill()
                await started.wait()
