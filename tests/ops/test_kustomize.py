"""The plain manifests are what the chart makes by default, and the example lays over them what it says."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringmere.http.app import ROUTES
from support.kubernetes import (
    CHART,
    KUSTOMIZE,
    VERSIONS,
    Object,
    container,
    environment,
    kind,
    needs_helm,
    pods,
    rendered,
    seconds_to_end,
    settings,
    valid,
)

BASE, EXAMPLE = KUSTOMIZE / "base", KUSTOMIZE / "overlays" / "example"
PLACES = [BASE, EXAMPLE]
KUBECTL = shutil.which("kubectl")
OF_THE_CHART = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")


def kustomization(place: Path) -> dict[str, Any]:
    """Return what a directory says of itself; fail when it says what :func:`built` would pass over."""
    found: dict[str, Any] = yaml.safe_load((place / "kustomization.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    assert set(found) <= {"apiVersion", "kind", "namespace", "resources", "images", "replicas", "patches"}
    return found


def merged(under: Any, over: Any) -> Any:
    """Lay one part of an object over another as a strategic merge does: lists of named things by their names."""
    if isinstance(under, dict) and isinstance(over, dict):
        both = under.keys() | over.keys()
        return {key: merged(under.get(key), over[key]) if key in over else under[key] for key in both}
    if isinstance(under, list) and isinstance(over, list) and all("name" in each for each in under + over):
        names = list(dict.fromkeys(each["name"] for each in under + over))
        old, new = ({each["name"]: each for each in part} for part in (under, over))
        return [merged(old[name], new[name]) if name in old and name in new else {**old, **new}[name] for name in names]
    return copy.deepcopy(over)


def resources(place: Path) -> Iterator[Object]:
    """Yield the objects of the files and directories that a directory names."""
    for name in kustomization(place)["resources"]:
        found = place / name
        if found.is_dir():
            yield from built(found.resolve())
        else:
            yield from yaml.safe_load_all(found.read_text())


def built(place: Path) -> list[Object]:
    """Return the objects of a directory with all that it lays over them."""
    said = kustomization(place)
    objects = {(each["kind"], each["metadata"]["name"]): each for each in resources(place)}
    for patch in said.get("patches", []):
        over = yaml.safe_load((place / patch["path"]).read_text())
        target = over["kind"], over["metadata"]["name"]
        objects[target] = merged(objects[target], over)
    for image in said.get("images", []):
        found = [each for pod in pods(list(objects.values())) for each in pod["spec"]["containers"]]
        hit = [each for each in found if each["image"].partition(":")[0] == image["name"]]
        assert hit, image
        for each in hit:
            each["image"] = f"{image['newName']}:{image['newTag']}"
    for count in said.get("replicas", []):
        objects["Deployment", count["name"]]["spec"]["replicas"] = count["count"]
    if "namespace" in said:
        for each in objects.values():
            each["metadata"]["namespace"] = said["namespace"]
    return list(objects.values())


def without_labels_of_the_chart(part: Any) -> Any:
    """Return an object without what only Helm writes into it."""
    if isinstance(part, dict):
        return {key: without_labels_of_the_chart(each) for key, each in part.items() if key not in OF_THE_CHART}
    if isinstance(part, list):
        return [without_labels_of_the_chart(each) for each in part]
    return part


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_every_file_is_named_and_every_name_has_its_file(place: Path) -> None:
    said = kustomization(place)
    named = {*said["resources"], *(patch["path"] for patch in said.get("patches", []))}
    assert all((place / name).exists() for name in named)
    assert {path.name for path in place.iterdir()} - {"kustomization.yaml"} == {
        name for name in named if not name.startswith("..")
    }


@needs_helm
def test_the_base_is_what_the_chart_makes_by_default(tmp_path: Path) -> None:
    chart = [each for each in rendered(tmp_path, {}) if not each["metadata"]["name"].endswith("-doctor")]
    assert by_name(built(BASE)) == by_name(without_labels_of_the_chart(chart))


def test_the_base_asks_for_the_image_of_the_charts_version() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    [pod] = pods(built(BASE))
    assert container(pod)["image"] == f"ringmere:{version}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_each_object_is_valid_in_the_oldest_and_newest_kubernetes(place: Path, version: str) -> None:
    assert all(valid(each, version) for each in built(place))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_settings_are_taken_and_a_pod_has_more_time_to_end_than_its_goodbyes_take(place: Path) -> None:
    objects = built(place)
    [pod] = pods(objects)
    deployment = kind(objects, "Deployment")["spec"]
    assert seconds_to_end(pod) <= deployment["minReadySeconds"] < deployment["progressDeadlineSeconds"]
    assert settings(pod).misspelt == {}
    assert {name for name, source in settings(pod).sources.items() if source == "environment"} == {
        name.removeprefix("RINGMERE_").lower() for name in environment(pod)
    }
    assert pod["spec"]["terminationGracePeriodSeconds"] >= seconds_to_end(pod) + 10


def test_the_example_changes_what_it_says_and_keeps_the_rest() -> None:
    objects = built(EXAMPLE)
    assert {each["metadata"]["namespace"] for each in objects} == {"streams"}
    deployment = kind(objects, "Deployment")
    [pod] = pods(objects)
    assert deployment["spec"]["replicas"] == 3
    assert container(pod)["image"] == "registry.example.com/ringmere:0.1.0"
    found = settings(pod).settings
    assert (found.replicas, found.drain_grace, found.listen) == (3, 60, "0.0.0.0:8080")
    [mount], [volume] = container(pod)["volumeMounts"], pod["spec"]["volumes"]
    assert mount == {"name": volume["name"], "mountPath": str(Path(found.nats_creds).parent), "readOnly": True}
    assert (container(pod)["securityContext"], container(pod)["livenessProbe"]) == (
        container(next(pods(built(BASE))))["securityContext"],
        container(next(pods(built(BASE))))["livenessProbe"],
    )


def test_the_example_opens_the_door_that_there_is() -> None:
    objects = built(EXAMPLE)
    [rule] = kind(objects, "Ingress")["spec"]["rules"]
    [service] = [each for each in objects if each["kind"] == "Service"]
    for path in rule["http"]["paths"]:
        assert path["path"] in {route for _, route, _ in ROUTES}
        assert path["backend"]["service"] == {
            "name": service["metadata"]["name"],
            "port": {"name": service["spec"]["ports"][0]["name"]},
        }


@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl; what it would build is tested without it above")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_kubectl_builds_the_same(place: Path) -> None:
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", place], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    objects = by_name(list(yaml.safe_load_all(done.stdout)))
    expected = by_name(built(place))
    for each in (*objects.values(), *expected.values()):
        for pod in pods([each]):
            container(pod)["env"].sort(key=lambda variable: variable["name"])
    assert objects == expected
