"""What Helm makes of the chart, what is in the kustomize directories, and whether Kubernetes would take it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ringmere.settings import Loaded, load

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "ops" / "helm" / "ringmere"
KUSTOMIZE = ROOT / "ops" / "kustomize"
HELM = shutil.which("helm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
needs_helm = pytest.mark.skipif(
    HELM is None and os.environ.get("CI") != "true",
    reason="there is no helm; the extra dev brings it on Linux on x86-64",
)
VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest version that the chart allows, and the newest one whose schemas are there."""
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
SECRET = "not-a-secret"

Object = dict[str, Any]


class HelmFailed(Exception):
    """Helm refused; the text is what it said."""


def helm(*arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run Helm without a cluster and return what it prints. Raises :class:`HelmFailed`."""
    assert HELM is not None
    env = {"PATH": os.environ.get("PATH", ""), "HOME": str(cwd)}
    done = subprocess.run(
        [HELM, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    if done.returncode:
        raise HelmFailed(done.stdout + done.stderr)
    return done.stdout


def values_file(directory: Path, values: Mapping[str, Any]) -> Path:
    """Write values as a file for Helm."""
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return path


def rendered(directory: Path, values: Mapping[str, Any], version: str = VERSIONS[0]) -> list[Object]:
    """Return the objects that Helm makes of the chart for these values."""
    file = values_file(directory, values)
    text = helm("template", "ringmere", CHART, "--values", file, "--kube-version", version, cwd=directory)
    return [each for each in yaml.safe_load_all(text) if each is not None]


def valid(thing: Object, version: str) -> bool:
    """Raise when Kubernetes has no such object or it has a field that Kubernetes does not know; else True."""
    kubernetes_validate.validate(thing, version, strict=True)
    return True


def kind(objects: list[Object], name: str) -> Object:
    """Return the only object of a kind."""
    [found] = [each for each in objects if each["kind"] == name]
    return found


def pods(objects: list[Object]) -> Iterator[Object]:
    """Yield metadata and spec of each pod: the Deployment's and the test's."""
    for each in objects:
        if each["kind"] == "Deployment":
            yield each["spec"]["template"]
        elif each["kind"] == "Pod":
            yield each


def container(pod: Object) -> Object:
    """Return the only container of a pod."""
    [found] = pod["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def mounted(pod: Object) -> dict[str, str]:
    """Return the files of Secrets by path in the container, with the name of the Secret."""
    volumes = {each["name"]: each["secret"] for each in pod["spec"].get("volumes", []) if "secret" in each}
    found = {}
    for mount in container(pod).get("volumeMounts", []):
        if mount["name"] in volumes:
            assert mount["readOnly"] is True
            secret = volumes[mount["name"]]
            assert secret["defaultMode"] == 0o440
            for item in secret["items"]:
                found[f"{mount['mountPath']}/{item['path']}"] = secret["secretName"]
    return found


def environment(pod: Object) -> dict[str, str]:
    """Return the variables of its container; those from a Secret are :data:`SECRET`."""
    return {each["name"]: each.get("value", SECRET) for each in container(pod)["env"]}


def settings(pod: Object) -> Loaded:
    """Return the settings that an instance in the pod would have. Raises when it would not start with them."""
    return load({}, environment(pod))


def seconds_to_end(pod: Object) -> float:
    """Return what the pod needs from the order to end until its last goodbye."""
    pause = container(pod).get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    return float(pause + settings(pod).settings.drain_grace)


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector finds an object with these labels."""
    return bool(selector) and selector.items() <= labels.items()
