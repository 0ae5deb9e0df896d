"""What the chart makes is valid and fits together; values that cannot work are refused."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringmere.http.app import ROUTES
from ringmere.settings import rows
from ringmere.telemetry.table import rows as metrics
from support.kubernetes import (
    CHART,
    CUSTOM,
    ROOT,
    VERSIONS,
    HelmFailed,
    Object,
    container,
    environment,
    helm,
    kind,
    mounted,
    needs_helm,
    pods,
    rendered,
    seconds_to_end,
    selects,
    settings,
    valid,
    values_file,
)
from support.prometheus import ALERTS, BOARDS, PROMTOOL, needs_prometheus

pytestmark = needs_helm

ON = {"enabled": True}
OFF = {"enabled": False}
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example.com/ringmere", "tag": "7"},
    "imagePullSecrets": [{"name": "registry"}],
    "nats": {
        "url": "tls://nats-0.nats:4223,tls://nats-1.nats",
        "auth": {"secret": "gateway", "kind": "creds"},
        "tls": {"secret": "certificates", "cert": "tls.crt", "key": "tls.key"},
    },
    "settings": {
        "drain_grace": "1.5m",
        "ring_size": 1_000_000,
        "max_bytes": "10GiB",
        "window_bytes_total": 1_000_000_000,
        "log_ttl": 90,
        "require_session": True,
        "cors_origin": ["https://a.example.com", "https://b.example.com"],
        "coalesce": ["token=/data/text"],
        "stream_errors": "status",
        "workers": 2,
    },
    "port": 9090,
    "podAnnotations": {"note": "1"},
    "podLabels": {"team": "streams"},
    "nodeSelector": {"pool": "streams"},
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "serviceAccount": {"annotations": {"note": "1"}},
    "service": {"type": "LoadBalancer", "annotations": {"note": "1"}},
    "ingress": {**ON, "host": "streams.example.com", "tlsSecret": "streams-tls"},
    "autoscaling": ON,
    "networkPolicy": {
        "from": [{"namespaceSelector": {}}],
        "nats": [{"podSelector": {"matchLabels": {"app": "nats"}}}],
        "dns": [{"namespaceSelector": {}}],
        "extraEgress": [{"ports": [{"port": 4318}]}],
    },
    "serviceMonitor": {**ON, "labels": {"release": "prometheus"}},
    "prometheusRule": {**ON, "labels": {"release": "prometheus"}, "runbookBase": "https://example.com/runbooks/"},
    "dashboards": {**ON, "annotations": {"folder": "Ringmere"}},
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "minimal": {
        "fullnameOverride": "gate",
        "preStopSeconds": 0,
        "settings": {"drain_grace": None},
        "serviceAccount": {"create": False},
        "podDisruptionBudget": OFF,
        "networkPolicy": OFF,
    },
    "password": {
        "nats": {"auth": {"secret": "gateway", "kind": "password", "user": "gateway"}},
        "settings": {"drain_grace": 0},
    },
    "nkey": {
        "nats": {"auth": {"secret": "gateway", "kind": "nkey", "key": "gateway.nk"}},
        "terminationGracePeriodSeconds": 60,
    },
    "token": {"nats": {"auth": {"secret": "gateway", "kind": "token"}}, "settings": {"drain_grace": "500ms"}},
}  # fmt: skip
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a value that there is not": ({"replicas": 3}, "replicas is not allowed"),
    "a setting that there is not": ({"settings": {"ring_sise": 1}}, "ring_sise is not allowed"),
    "a choice that there is not": ({"settings": {"reader": "guess"}}, "settings.reader"),
    "a setting that the chart makes": ({"settings": {"listen": ":1"}}, "listen is not allowed"),
    "a secret among the settings": ({"settings": {"nats_password": "x"}}, "nats_password is not allowed"),
    "a secret in an address": ({"nats": {"url": "nats://me:secret@nats:4222"}}, "nats.url"),
    "a kind of credentials": ({"nats": {"auth": {"kind": "card"}}}, "nats.auth.kind"),
    "a password of nobody": ({"nats": {"auth": {"secret": "x", "kind": "password"}}}, "nats.auth.user"),
    "a port of root": ({"port": 80}, "port"),
    "a grace that is too short": ({"terminationGracePeriodSeconds": 34}, "too short"),
    "a drain that outgrows the grace": (
        {"terminationGracePeriodSeconds": 60, "settings": {"drain_grace": "1m"}}, "are 75",
    ),
    "a drain that is no duration": ({"settings": {"drain_grace": "long"}}, "no duration"),
    "a certificate for any host": ({"ingress": {**ON, "tlsSecret": "x"}}, "ingress.host"),
    "a probe without an end": ({"probes": {"liveness": {"failureThreshold": 0}}}, "failureThreshold"),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Object]]:
    """What each case makes."""
    return {name: rendered(tmp_path_factory.mktemp("chart"), values) for name, values in CASES.items()}


@pytest.fixture(params=CASES)
def objects(request: pytest.FixtureRequest, made: Mapping[str, list[Object]]) -> list[Object]:
    """The objects of one case."""
    return made[request.param]


@pytest.fixture
def everything(made: Mapping[str, list[Object]]) -> list[Object]:
    """The objects when all is switched on."""
    return made["everything"]


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_to_say_about_the_chart(case: str, tmp_path: Path) -> None:
    helm("lint", "--strict", CHART, "--values", values_file(tmp_path, CASES[case]), cwd=tmp_path)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_each_object_is_valid_in_the_oldest_and_newest_kubernetes(case: str, version: str, tmp_path: Path) -> None:
    found = rendered(tmp_path, CASES[case], version)
    assert all(valid(each, version) for each in found if each["kind"] not in CUSTOM)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", BAD)
def test_values_that_cannot_work_are_refused_by_name(case: str, tmp_path: Path) -> None:
    values, said = BAD[case]
    with pytest.raises(HelmFailed, match=re.escape(said)):
        rendered(tmp_path, values)


def test_a_cluster_that_is_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HelmFailed, match="kubeVersion"):
        rendered(tmp_path, {}, "1.29")


def test_what_is_switched_on_is_there_and_what_is_not_is_not(made: Mapping[str, list[Object]]) -> None:
    kinds = {name: sorted({each["kind"] for each in found}) for name, found in made.items()}
    assert kinds["minimal"] == ["Deployment", "Pod", "Service"]
    usual = {"Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert set(kinds["defaults"]) == usual
    assert set(kinds["everything"]) == usual | CUSTOM | {"ConfigMap", "HorizontalPodAutoscaler", "Ingress"}


# -- pods ---------------------------------------------------------------------------------------------------


def test_each_variable_is_a_setting_and_has_a_value_that_the_service_takes(objects: list[Object]) -> None:
    known = {row.variable for row in rows()}
    for pod in pods(objects):
        names = set(environment(pod)) - {"TZ"}
        assert names <= known
        assert settings(pod).misspelt == {}
        assert {name for name, source in settings(pod).sources.items() if source == "environment"} == {
            name.removeprefix("RINGMERE_").lower() for name in names
        }


def test_values_arrive_as_they_were_written(everything: list[Object]) -> None:
    for pod in pods(everything):
        found = settings(pod).settings
        assert (found.ring_size, found.window_bytes_total, found.max_bytes) == (1_000_000, 10**9, 10 * 1024**3)
        assert (found.log_ttl, found.drain_grace, found.require_session) == (90, 90, True)
        assert found.cors_origin == ("https://a.example.com", "https://b.example.com")
        assert found.nats_url == EVERYTHING["nats"]["url"]


def test_secrets_come_from_the_secret_that_is_named(made: Mapping[str, list[Object]]) -> None:
    for case, key in (("password", "password"), ("token", "token")):
        for pod in pods(made[case]):
            [variable] = [each for each in container(pod)["env"] if "valueFrom" in each]
            assert variable["name"] == f"RINGMERE_NATS_{key.upper()}"
            assert variable["valueFrom"] == {"secretKeyRef": {"name": "gateway", "key": key}}
    for case, expected in (
        ("everything", {"nats.creds", "ca.crt", "tls.crt", "tls.key"}),
        ("nkey", {"gateway.nk"}),
        ("password", set()),
        ("defaults", set()),
    ):
        for pod in pods(made[case]):
            assert {Path(path).name for path in mounted(pod)} == expected
            paths = {value for value in environment(pod).values() if value.startswith("/etc/")}
            assert paths == set(mounted(pod))


def test_pods_may_do_nothing_that_they_need_not(objects: list[Object]) -> None:
    for pod in pods(objects):
        spec, inner = pod["spec"], container(pod)
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert inner["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= set(inner["resources"]["requests"])
        assert "memory" in inner["resources"]["limits"]
    for account in (each for each in objects if each["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_pods_are_the_user_that_the_image_is_made_for(objects: list[Object]) -> None:
    [user] = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "ops" / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    for pod in pods(objects):
        context = pod["spec"]["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"]) == tuple(map(int, user))


def test_a_pod_has_more_time_to_end_than_its_goodbyes_take(objects: list[Object]) -> None:
    pod = kind(objects, "Deployment")["spec"]["template"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= seconds_to_end(pod) + 10


def test_the_derived_grace_follows_the_drain(made: Mapping[str, list[Object]]) -> None:
    found = {name: next(pods(each))["spec"] for name, each in made.items() if name != "nkey"}
    grace = {name: spec["terminationGracePeriodSeconds"] for name, spec in found.items()}
    assert grace == {"defaults": 35, "everything": 105, "minimal": 30, "password": 15, "token": 16}


def test_probes_ask_routes_that_exist_soon_for_readiness_and_patiently_for_life(objects: list[Object]) -> None:
    inner = container(kind(objects, "Deployment")["spec"]["template"])
    routes = {path for method, path, _ in ROUTES if method == "GET"}
    named = {port["name"] for port in inner["ports"]}
    waits = {}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert inner[probe]["httpGet"]["path"] in routes
        assert inner[probe]["httpGet"]["port"] in named
        waits[probe] = inner[probe]["periodSeconds"] * inner[probe]["failureThreshold"]
    assert inner["readinessProbe"]["httpGet"]["path"] == "/readyz"
    # Only these two restart a pod, and that does not bring NATS back.
    assert inner["livenessProbe"]["httpGet"]["path"] == inner["startupProbe"]["httpGet"]["path"] == "/livez"
    assert waits["readinessProbe"] <= 5
    assert waits["livenessProbe"] >= 60


def test_a_deploy_takes_pods_away_one_by_one_when_others_serve_and_goodbyes_are_over(objects: list[Object]) -> None:
    spec = kind(objects, "Deployment")["spec"]
    # Kubernetes refuses a deadline that is shorter.
    assert seconds_to_end(spec["template"]) <= spec["minReadySeconds"] < spec["progressDeadlineSeconds"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


# -- what belongs together ----------------------------------------------------------------------------------


def test_selectors_find_the_gateways_and_not_the_pod_of_the_test(objects: list[Object]) -> None:
    gateway, doctor = kind(objects, "Deployment")["spec"]["template"], kind(objects, "Pod")
    both = [gateway["metadata"]["labels"], doctor["metadata"]["labels"]]
    selectors = {"Service": [kind(objects, "Service")["spec"]["selector"]]}
    deployment = kind(objects, "Deployment")["spec"]
    selectors["Deployment"] = [
        deployment["selector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in deployment["template"]["spec"]["topologySpreadConstraints"]),
    ]
    for each in objects:
        if each["kind"] == "PodDisruptionBudget":
            selectors["PodDisruptionBudget"] = [each["spec"]["selector"]["matchLabels"]]
        elif each["kind"] == "NetworkPolicy":
            chosen = [selects(each["spec"]["podSelector"]["matchLabels"], labels) for labels in both]
            assert chosen == ([False, True] if each["metadata"]["name"].endswith("-doctor") else [True, False])
        elif each["kind"] == "ServiceMonitor":
            assert selects(each["spec"]["selector"]["matchLabels"], kind(objects, "Service")["metadata"]["labels"])
    for name, found in selectors.items():
        for selector in found:
            assert [selects(selector, labels) for labels in both] == [True, False], name


def test_the_port_is_the_same_everywhere(objects: list[Object]) -> None:
    inner = container(kind(objects, "Deployment")["spec"]["template"])
    [port] = inner["ports"]
    assert environment(kind(objects, "Deployment")["spec"]["template"])["RINGMERE_LISTEN"].endswith(
        f":{port['containerPort']}"
    )
    [service] = kind(objects, "Service")["spec"]["ports"]
    assert service["targetPort"] == port["name"]
    for each in objects:
        if each["kind"] == "Ingress":
            for rule in each["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    backend = path["backend"]["service"]
                    assert backend == {"name": kind(objects, "Service")["metadata"]["name"], "port": {"name": "http"}}
        elif each["kind"] == "ServiceMonitor":
            assert [end["port"] for end in each["spec"]["endpoints"]] == [service["name"]]
        elif each["kind"] == "NetworkPolicy":
            inward = [rule["ports"] for rule in each["spec"].get("ingress", [])]
            outward = [
                rule["ports"] for rule in each["spec"]["egress"] if rule["ports"][0]["port"] == port["containerPort"]
            ]
            assert inward + outward == [[{"port": port["containerPort"], "protocol": "TCP"}]]
    assert container(kind(objects, "Pod"))["command"] == [
        "ringmere", "doctor", "--server", f"http://{kind(objects, 'Service')['metadata']['name']}:{service['port']}",
    ]  # fmt: skip


def test_the_network_policy_lets_out_to_each_nats_server_and_dns(made: Mapping[str, list[Object]]) -> None:
    for case, expected in (("defaults", {4222}), ("everything", {4223, 4222})):
        gateway, doctor = (each["spec"] for each in made[case] if each["kind"] == "NetworkPolicy")
        spec = gateway
        nats, dns, *more = spec["egress"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert {each["port"] for each in nats["ports"]} == expected
        assert {(each["port"], each["protocol"]) for each in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
        if case == "everything":
            policy = EVERYTHING["networkPolicy"]
            own = [{"podSelector": doctor["podSelector"]}]
            assert (spec["ingress"][0]["from"], nats["to"], dns["to"]) == (
                policy["from"] + own, policy["nats"], policy["dns"],
            )  # fmt: skip
            assert more == policy["extraEgress"]
        assert doctor["egress"][:-1] == gateway["egress"]
        assert doctor["egress"][-1]["to"] == [{"podSelector": gateway["podSelector"]}]
        assert "ingress" not in doctor


def test_a_network_policy_is_right_for_addresses_in_any_form(tmp_path: Path) -> None:
    for url, expected in {
        "nats": [4222],
        "nats://[fd00::1]:4300": [4300],
        "nats://[fd00::1]": [4222],
        "nats://a:1, nats://b:1/": [1],
    }.items():
        for policy in rendered(tmp_path, {"nats": {"url": url}}):
            if policy["kind"] == "NetworkPolicy":
                assert [each["port"] for each in policy["spec"]["egress"][0]["ports"]] == expected, url


def test_the_ingress_opens_routes_that_exist_and_holds_nothing_back(everything: list[Object]) -> None:
    ingress = kind(everything, "Ingress")
    [rule] = ingress["spec"]["rules"]
    opened = [path["path"] for path in rule["http"]["paths"]]
    routes = {path for _, path, _ in ROUTES}
    assert {path for path in routes if any(path == each or path.startswith(f"{each}/") for each in opened)} >= {
        "/session", "/session/{id}/events", "/capabilities",
    }  # fmt: skip
    assert all(path in routes for path in opened)
    assert "/metrics" not in opened
    said = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}
    assert said["proxy-buffering"] == "off"
    default = {row.name: row.default for row in rows()}
    assert int(said["proxy-read-timeout"]) > 2 * default["heartbeat"]
    assert int(said["proxy-body-size"].removesuffix("m")) * 1024**2 == default["request_bytes"]


# -- eyes ---------------------------------------------------------------------------------------------------


def test_the_autoscaler_asks_for_a_metric_that_pods_have(everything: list[Object]) -> None:
    spec = kind(everything, "HorizontalPodAutoscaler")["spec"]
    deployment = kind(everything, "Deployment")
    assert spec["scaleTargetRef"] == {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment["metadata"]["name"],
    }  # fmt: skip
    assert "replicas" not in deployment["spec"], "each deploy would undo what the autoscaler has done"
    asked = [each["pods"]["metric"]["name"] for each in spec["metrics"] if each["type"] == "Pods"]
    assert asked == ["ringmere_subscribers"]
    assert set(asked) <= {row.name for row in metrics()}
    assert adapter_rule()["seriesQuery"].startswith(f"{asked[0]}{{")


def adapter_rule() -> dict[str, Any]:
    """Return the rule of prometheus-adapter that the README gives."""
    [block] = re.findall(r"```yaml\n(rules:\n.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    [rule] = yaml.safe_load(block)["rules"]["custom"]
    assert isinstance(rule, dict)
    return rule


@needs_prometheus
def test_the_adapters_rule_gives_the_streams_of_each_pod(tmp_path: Path) -> None:
    query = adapter_rule()["metricsQuery"]
    for part, text in {"Series": "ringmere_subscribers", "LabelMatchers": 'namespace="n"', "GroupBy": "pod"}.items():
        query = query.replace(f"<<.{part}>>", text)
    series = [
        {"series": f'ringmere_subscribers{{namespace="{space}",pod="{pod}",transport="{transport}"}}', "values": value}
        for space, pod, transport, value in (
            ("n", "a", "sse", "3"), ("n", "a", "websocket", "4"), ("n", "b", "sse", "5"), ("m", "a", "sse", "100"),
        )
    ]  # fmt: skip
    expected = [{"labels": '{pod="a"}', "value": 7}, {"labels": '{pod="b"}', "value": 5}]
    asked = {"expr": query, "eval_time": "0s", "exp_samples": expected}
    case = tmp_path / "case.yml"
    case.write_text(yaml.safe_dump({"tests": [{"input_series": series, "promql_expr_test": [asked]}]}))
    promtool("test", "rules", case)


def promtool(*arguments: str | Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_monitor_scrapes_the_route_of_metrics_under_the_job_of_the_alerts(
    everything: list[Object],
) -> None:
    monitor = kind(everything, "ServiceMonitor")
    assert (monitor["apiVersion"], set(monitor["spec"])) == ("monitoring.coreos.com/v1", {"selector", "endpoints"})
    [end] = monitor["spec"]["endpoints"]
    assert set(end) == {"port", "path", "interval", "relabelings"}
    assert ("GET", end["path"]) in {(method, path) for method, path, _ in ROUTES}
    [relabeling] = end["relabelings"]
    assert relabeling["targetLabel"] == "job"
    assert f'up{{job="{relabeling["replacement"]}"}}' in ALERTS.read_text()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


@needs_prometheus
def test_the_prometheus_rule_holds_the_alerts_as_they_are(everything: list[Object], tmp_path: Path) -> None:
    rule = kind(everything, "PrometheusRule")
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    expected = yaml.safe_load(ALERTS.read_text())
    for each in (alert for group in expected["groups"] for alert in group["rules"]):
        book = each["annotations"]["runbook_url"].removeprefix("ops/runbooks/")
        each["annotations"]["runbook_url"] = f"https://example.com/runbooks/{book}"
    assert rule["spec"] == expected
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    promtool("check", "rules", file)


def test_runbooks_are_linked_as_in_the_repository_when_no_other_place_is_named(tmp_path: Path) -> None:
    made = rendered(tmp_path, {"prometheusRule": ON})
    assert kind(made, "PrometheusRule")["spec"] == yaml.safe_load(ALERTS.read_text())


def test_each_dashboard_is_in_a_config_map_of_its_own(everything: list[Object]) -> None:
    maps = [each for each in everything if each["kind"] == "ConfigMap"]
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)
    found = {name: text for each in maps for name, text in each["data"].items()}
    assert found == {f"ringmere-{board.name}": board.read_text() for board in BOARDS}


def test_a_packaged_chart_holds_alerts_and_dashboards(tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path, cwd=tmp_path)
    [package] = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        for path in [ALERTS, *BOARDS]:
            place = "alerts.yml" if path == ALERTS else f"dashboards/{path.name}"
            packed = archive.extractfile(f"ringmere/files/{place}")
            assert packed is not None
            assert packed.read() == path.read_bytes()
