"""An object that is nested deeper than Python decodes stops no job, on the embedded and the real API server."""

import json
from typing import Any

import pytest

from tests.api.conftest import Run
from tests.apis import Api, Object
from tests.farm import farm_pod, farmed, listed, pod
from tests.mirrors import NAMESPACE as MIRRORS
from tests.mirrors import Mirrors
from tests.workloads import KINDS, roll_annotations, settle, workload
from tests.worlds import (
    at,
    configmap,
    content,
    exchange_rate,
    namespace_object,
    network_policy,
    role_binding,
    rule,
    secret,
)

DEPTHS = (150, 900, 2000, 9000)


def nested(levels: int = 9000) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


def deep(obj: Object, levels: int = 9000, manager: str = "tenant", fields: str = "") -> bytes:
    """The object as JSON with deep managedFields, which Python's json module cannot encode."""
    entry = {"manager": manager, "operation": "Update", "apiVersion": obj["apiVersion"], "fieldsType": "FieldsV1"}
    entry["time"] = "2026-01-01T00:00:00Z"
    metadata = {**obj["metadata"], "managedFields": [{**entry, "fieldsV1": "NESTED"}]}
    text = json.dumps({**obj, "metadata": metadata})
    return text.replace('"NESTED"', fields or nested(levels)).encode()


def create(api: Api, obj: Object, **options: Any) -> Object:
    """Create an object with deep managedFields; return it as sent, since Python cannot decode the answer."""
    status, _, answer = api.request("POST", api.path(obj, named=False), deep(obj, **options))
    assert status == 201, answer[:500]
    api.made(obj)
    return obj


def stamped(job: str, namespace: str, **annotations: str) -> Object:
    labels = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": job}
    return {"labels": {**labels, "kubechores.dev/rule-namespace": namespace}, "annotations": annotations}


@pytest.mark.parametrize("kind", [configmap, secret])
@pytest.mark.parametrize("levels", DEPTHS)
def test_a_deep_object_with_the_stamp_does_not_stop_sync_copies(api: Api, sync: Run, kind: Any, levels: int) -> None:
    home, team, tenant = api.namespace("home"), api.namespace("team"), api.namespace("tenant")
    source = api.create(kind(home))
    forged = kind(tenant, "forged")
    forged["metadata"] |= stamped("sync-copies", "kube-chores")
    create(api, forged, levels=levels)
    api.create(rule("rule", home, team, ruleType=kind.__name__))

    made, verified = sync(), sync("--verify", "content")

    assert (made.exit_code, made.summary["created"]) == (0, 1)
    assert (verified.exit_code, verified.summary) == (0, {"unchanged": 1})
    assert content(api.get(at(team, source))) == content(source)
    assert api.request("GET", api.path(forged))[0] == 200


def test_a_deep_source_is_copied_and_a_deep_copy_is_repaired(api: Api, sync: Run, home: str, team: str) -> None:
    source = create(api, configmap(home))
    api.create(rule("rule", home, team))
    sync()
    copy = api.read(at(team, source))
    copy["metadata"].pop("managedFields")
    api.call("PUT", api.path(copy), deep({**copy, "data": {"a": "theirs"}}, fields=f'{{"f:data":{nested()}}}'))

    repaired, again = sync(), sync()

    assert (repaired.exit_code, repaired.summary) == (0, {"configured": 1})
    assert (again.exit_code, again.summary) == (0, {"unchanged": 1})
    assert content(api.get(at(team, source))) == content(source)


def test_large_sources_of_other_rules_do_not_refuse_a_role_binding(api: Api, sync: Run, home: str, team: str) -> None:
    """A run keeps 16 MiB of contents, and digests of others. Subjects cannot be moved in digests."""
    large, sizes = {"matchLabels": {"large": "yes"}}, [*[1_000_000] * 16, 700_000, 70_000, 2_000]
    for number, size in enumerate(sizes):
        data = {"data": {"a": f"{number:02}" + "x" * size}}
        api.create(configmap(home, f"large-{number}", labels=large["matchLabels"], **data))
    source, policy = api.create(role_binding(home)), api.create(network_policy(home))
    api.create(rule("large", home, team, selector=large))
    api.create(rule("bindings", home, team, ruleType="rolebinding", subjectNamespace="target"))
    api.create(rule("policies", home, team, ruleType="networkpolicy"))

    ran, again = sync(), sync("--verify", "content")

    assert (ran.exit_code, ran.summary) == (0, {"created": len(sizes) + 2})
    assert (again.exit_code, again.summary) == (0, {"unchanged": len(sizes) + 2})
    assert content(api.get(at(team, policy))) == content(policy)
    group, robot = source["subjects"]
    assert api.read(at(team, source))["subjects"] == [group, {**robot, "namespace": team}]


def test_a_deep_namespace_gets_its_copy(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), f"team-{api.token}"
    source = api.create(configmap(home))
    create(api, namespace_object(team))
    api.create(rule("rule", home, team))

    assert (sync().exit_code, content(api.get(at(team, source)))) == (0, content(source))


def test_a_deep_rule_is_applied(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home))
    create(api, rule("rule", home, team))

    assert (sync().exit_code, content(api.get(at(team, source)))) == (0, content(source))


def test_a_deep_object_with_the_stamp_does_not_stop_fetch_rates(api: Api, fetch: Run) -> None:
    shop, tenant = api.namespace("shop"), api.namespace("tenant")
    forged = configmap(tenant, "forged")
    forged["metadata"] |= stamped("fetch-rates", tenant)
    create(api, forged)
    api.create(exchange_rate(shop))

    assert (fetch().exit_code, fetch().summary) == (0, {"unchanged": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_workload_that_did_not_opt_in_does_not_stop_roll_workloads(api: Api, roll: Run, kind: str) -> None:
    shop = api.namespace("shop")
    api.create(configmap(shop))
    create(api, workload(shop, "deep", kind, opted_in=None))
    made = settle(api, api.create(workload(shop)))

    assert (roll().exit_code, bool(roll_annotations(api.get(made))[0])) == (0, True)


@pytest.mark.parametrize(
    "baseline",
    [
        '{"x":' + "[" * 5000 + "]" * 5000 + "}",
        '{"version":1,"uid":"x","sources":' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"version":1,"uid":"x","sources":{"a":null}}',
        '{"version":1e999}',
        "null",
        "[" * 9000,
        '{"a":' * 5000,
        '{"a":' * 1100 + '"' + '\\"' * 14_000,
    ],
    ids=str.__len__,
)
def test_a_deep_or_odd_baseline_counts_as_none(api: Api, roll: Run, baseline: str) -> None:
    shop = api.namespace("shop")
    api.create(configmap(shop))
    hostile = workload(shop, "hostile")
    hostile["metadata"]["annotations"]["kubechores.dev/config-baseline"] = baseline
    made = [settle(api, api.create(each)) for each in (hostile, workload(shop))]

    first, second = roll(), roll()

    assert (first.exit_code, first.summary) == (0, {"annotated": 2})
    assert (second.exit_code, second.summary) == (0, {"unchanged": 2})
    assert all("version" in str(roll_annotations(api.get(each))[0]) for each in made)


def test_a_deep_workload_and_its_deep_config_are_rolled(api: Api, roll: Run) -> None:
    shop = api.namespace("shop")
    used = create(api, configmap(shop), fields=f'{{"f:data":{nested()}}}')
    made = settle(api, create(api, workload(shop)))
    roll()
    settle(api, made)
    api.patch(used, {"data": {"a": "changed"}})

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"restarted": 1}), ran.results[0]["reason"]
    assert roll_annotations(api.get(made))[1]


def test_deep_pods_and_farm_pods_do_not_stop_farm_pods(api: Api, farm: Run) -> None:
    shop = farmed(api)
    create(api, pod(shop, "deep"))
    create(api, pod(shop, "drifted"))
    create(api, farm_pod(shop, "drifted", 7, **stamped("farm-pods", "")))
    api.create(pod(shop, "good", 2))
    create(api, farm_pod(shop, "theirs"))
    api.create(pod(shop, "theirs"))

    ran, again = farm(), farm()

    assert (ran.exit_code, again.exit_code) == (0, 0)
    assert {name: each["spec"]["containers"] for name, each in listed(api, shop).items()} == {
        "farm-deep": 1,
        "farm-drifted": 1,
        "farm-good": 2,
        "farm-theirs": 1,
    }
    assert again.summary["conflict"] == 1


def test_deep_resources_do_not_stop_mirror_audit(api: Api, mirrors: Mirrors, audit: Run) -> None:
    mirror = mirrors.healthy()
    before = audit()
    service = api.read({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": MIRRORS, "name": mirror.name}})
    service["metadata"].pop("managedFields")
    labels = {**service["metadata"]["labels"], "theirs": "x"}
    changed = {**service, "metadata": {**service["metadata"], "labels": labels}}
    api.call("PUT", api.path(service), deep(changed, fields=f'{{"f:spec":{nested()}}}'))

    after = audit()

    assert (after.exit_code, after.summary) == (before.exit_code, before.summary)
