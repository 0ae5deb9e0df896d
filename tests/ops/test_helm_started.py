"""What the pods of the chart would run does run: with their variables and files, against a real NATS."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import nkeys
import pytest

from ringmere.embedded import free_port
from support.gateway import GatewayProcess
from support.kubernetes import SECRET, Object, container, environment, kind, mounted, needs_helm, pods, rendered
from support.nats import running_server

pytestmark = needs_helm

KEY = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
SEED, PUBLIC = bytes(KEY.seed).decode(), KEY.public_key.decode()
LOGINS: dict[str, tuple[dict[str, Any], str, str]] = {
    "none": ({}, SECRET, ""),
    "password": ({"kind": "password", "user": "gateway"}, SECRET, f"users: [{{user: gateway, password: {SECRET}}}]"),
    "token": ({"kind": "token"}, SECRET, f"token: {SECRET}"),
    "nkey": ({"kind": "nkey", "key": "gateway.nk"}, SEED, f"users: [{{nkey: {PUBLIC}}}]"),
}
"""By name: the credentials as the chart is told, what is in the Secret, and what the server asks for."""


def values(auth: dict[str, Any]) -> dict[str, Any]:
    return {"nats": {"auth": {"secret": "gateway", **auth}}} if auth else {}


def variables(pod: Object, directory: Path, nats_url: str, secret: str) -> dict[str, str]:
    """Return the environment of the pod's container, with ports, addresses and paths of this machine."""
    env = {name: secret if value == SECRET else value for name, value in environment(pod).items()}
    host = env["RINGMERE_LISTEN"].rpartition(":")[0]
    env |= {"RINGMERE_LISTEN": f"{host}:{free_port()}", "RINGMERE_NATS_URL": nats_url}
    for path in mounted(pod):
        file = directory / Path(path).name
        file.write_text(secret)
        env = {name: str(file) if value == path else value for name, value in env.items()}
    # As in a container: nothing of this process but where programs and packages are.
    return env | {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | {"HOME": "/"}


def process(pod: Object, directory: Path, nats_url: str, secret: str = SECRET) -> GatewayProcess:
    """Return what the pod's container would run, not started."""
    command = container(pod)["command"]
    assert command[:2] == ["ringmere", "serve"]
    return GatewayProcess(command[2:], directory / "gateway.log", variables(pod, directory, nats_url, secret))


async def doctor(pod: Object, server: str, env: dict[str, str]) -> tuple[int | None, str]:
    """Run what the pod of `helm test` would run, and return its exit code and what it said."""
    words = [server if word.startswith("http://") else word for word in container(pod)["command"]]
    assert words[0] == "ringmere"
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(running.communicate(), 60)
    return running.returncode, output.decode()


@pytest.mark.parametrize("login", LOGINS)
async def test_what_a_pod_runs_starts_answers_its_probes_and_ends_in_time(login: str, tmp_path: Path) -> None:
    auth, secret, asked = LOGINS[login]
    pod = kind(rendered(tmp_path, values(auth)), "Deployment")["spec"]["template"]
    async with running_server(tmp_path / "nats", extra=f"authorization {{ {asked} }}\n" if asked else "") as nats:
        gateway = process(pod, tmp_path, nats.url, secret)
        try:
            await gateway.start()
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert await gateway.status(container(pod)[probe]["httpGet"]["path"]) == 200
            assert await gateway.stop(pod["spec"]["terminationGracePeriodSeconds"]) == 0
        finally:
            await gateway.kill()


async def test_a_pod_that_waits_for_nats_is_not_restarted_and_not_asked(tmp_path: Path) -> None:
    pod = next(pods(rendered(tmp_path, {})))
    gateway = process(pod, tmp_path, f"nats://127.0.0.1:{free_port()}")
    try:
        await gateway.start(ready=False)
        names = ("startup", "readiness", "liveness")
        paths = {name: container(pod)[f"{name}Probe"]["httpGet"]["path"] for name in names}
        found = {name: await gateway.status(path) for name, path in paths.items()}
        assert found == {"startup": 200, "readiness": 503, "liveness": 200}
    finally:
        await gateway.kill()


@pytest.mark.parametrize("login", ["none", "nkey"])
async def test_the_test_of_the_chart_is_content_with_what_its_pods_run_and_only_then(
    login: str, tmp_path: Path
) -> None:
    auth, secret, asked = LOGINS[login]
    objects = rendered(tmp_path, values(auth))
    pod, patient = kind(objects, "Deployment")["spec"]["template"], kind(objects, "Pod")
    async with running_server(tmp_path / "nats", extra=f"authorization {{ {asked} }}\n" if asked else "") as nats:
        gateway = process(pod, tmp_path, nats.url, secret)
        try:
            await gateway.start()
            env = variables(patient, tmp_path, nats.url, secret)
            code, said = await doctor(patient, gateway.url, env)
            assert code == 0, said
        finally:
            await gateway.kill()
        code, said = await doctor(patient, gateway.url, env)
        assert code != 0, said
