"""The key for fingerprints of Secrets: its purpose, its creation, and the effects of its loss."""

import hashlib
import hmac
import json
import secrets as randomness
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.values import stamps
from tests.api.conftest import Ran, Run, runs
from tests.api.test_roll_workloads import changed, reason, with_baseline
from tests.apis import Api, Object
from tests.canary import canary
from tests.workloads import BASELINE, FROM_A_VOLUME, KEY, roll_annotations, set_key, settle, workload
from tests.worlds import configmap, encoded, secret

LOGIN = {"volumes": [{"name": "login", "secret": {"secretName": "login"}}]}
MIXED = {"volumes": [*FROM_A_VOLUME["volumes"], *LOGIN["volumes"]]}
KEY_PATH = "/api/v1/namespaces/kube-chores/secrets/roll-workloads-key"


def key_of(api: Api) -> str | None:
    """Return the value of the key in the cluster, base64-encoded."""
    found = api.get(KEY)
    return None if not found else (found.get("data") or {}).get("key")


def stamp(found: Object | None) -> Object:
    """Return the decoded baseline of a workload."""
    baseline: Object = json.loads(roll_annotations(found)[0] or "")
    return baseline


# information that baselines reveal


def test_a_pin_cannot_be_found_from_the_baseline_and_the_uid(api: Api, roll: Run) -> None:
    """Users who read a workload have the baseline, and uids are in audit logs and metrics."""
    space = api.namespace("shop")
    pin = f"{randomness.randbelow(10_000):04}"
    source = api.call("POST", f"/api/v1/namespaces/{space}/secrets", secret(space, data={"pin": encoded(pin)}))
    api.made(source)
    one_key = {"container": {"env": [{"name": "PIN", "valueFrom": {"secretKeyRef": {"name": "login", "key": "pin"}}}]}}
    made = [api.create(workload(space, name, pod=pod)) for name, pod in (("whole", LOGIN), ("one-key", one_key))]
    assert roll().summary == {"annotated": 2}
    baselines = [stamp(api.get(each)) for each in made]
    public = {found for each in baselines for found in each["sources"].values()}

    known = ["", source["metadata"]["uid"], *(each.get("key", "") for each in baselines)]
    found = [pin for pin in (f"{n:04}" for n in range(10_000)) if any(guesses(pin, key) & public for key in known)]

    assert found == []


def guesses(pin: str, key: str) -> set[str]:
    """Return the fingerprints of a Secret with this PIN, computed with that key."""
    found = []
    for parts in (("data", "pin", encoded(pin)), (key, "data", "pin", encoded(pin))):
        digest = hmac.new(key.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()
        found.append(hashlib.sha256(f"pin {digest}".encode()).hexdigest()[:32])
    return set(found)


def test_a_tenant_cannot_compare_fingerprints_with_those_of_own_values(api: Api, roll: Run) -> None:
    spaces = [api.namespace("shop"), api.namespace("tenant")]
    same = encoded(canary())
    for space in spaces:
        api.create(secret(space, data={"user": same}))
        api.create(workload(space, pod=LOGIN))
    assert roll().summary == {"annotated": 2}

    found = [stamp(api.get(workload(space)))["sources"]["secret/login"] for space in spaces]

    assert found[0] != found[1]


# creation of the key


def test_the_first_run_fills_the_key_and_the_next_ones_leave_it(api: Api, roll: Run) -> None:
    set_key(api, None)
    shipped = api.get(KEY)
    space = api.namespace("shop")
    source = api.create(secret(space))
    made = settle(api, api.create(workload(space, pod=LOGIN)))
    api.mark()

    first = roll("--diff")

    assert (first.exit_code, first.summary) == (0, {"skipped": 1, "configured": 1})
    assert roll_annotations(api.get(made)) == (None, None)
    key = b64decode(key_of(api) or "").decode()
    assert len(key) >= 32
    filled = api.get(KEY)
    assert filled and shipped
    assert {**filled["metadata"], "resourceVersion": "", "managedFields": []} == {
        **shipped["metadata"],
        "resourceVersion": "",
        "managedFields": [],
    }
    writes = [(each.method, each.path) for each in api.writes() if "/secrets" in each.path]
    assert writes == [("PUT", KEY_PATH)]
    assert roll().summary == {"annotated": 1}
    settle(api, made)
    changed(api, source, user=canary())
    second = roll("--diff")
    assert (second.summary, key_of(api)) == ({"restarted": 1}, encoded(key))
    shown = "".join((first.stdout, first.stderr, second.stdout, second.stderr, *api.public().values()))
    workloads = json.dumps(api.get(made))
    assert [form for form in (key, encoded(key)) if form in shown + workloads] == []


@pytest.mark.parametrize("mode", ["--dry-run", "--dry-run=server", "--check"])
def test_a_dry_run_writes_no_key_and_reports_what_a_run_would_do(api: Api, roll: Run, mode: str) -> None:
    set_key(api, None)
    space = api.namespace("shop")
    api.create(secret(space))
    made = settle(api, api.create(workload(space, pod=LOGIN)))
    api.mark()

    ran = roll(mode)

    assert (ran.exit_code, ran.summary) == (3 if mode == "--check" else 0, {"skipped": 1, "configured": 1})
    assert reason(ran, "missing") == "has a new key for the fingerprints of Secrets"
    assert [each for each in api.writes() if each.query.get("dryRun") != "All"] == []
    assert (key_of(api), roll_annotations(api.get(made))) == (None, (None, None))


def test_the_key_is_read_only_for_workloads_that_use_secrets(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, "no-secret"))
    api.mark()

    assert roll().summary == {"annotated": 1}

    assert [each.path for each in api.requests() if "/secrets" in each.path] == []


def test_a_workload_that_uses_the_secret_of_the_key_is_rolled(api: Api, roll: Run) -> None:
    set_key(api, None)
    pod = {"volumes": [{"name": "key", "secret": {"secretName": "roll-workloads-key"}}]}
    made = settle(api, api.create(workload("kube-chores", f"uses-{api.token}", pod=pod)))
    assert roll().summary == {"configured": 1, "skipped": 1}
    assert roll().summary == {"annotated": 1}
    settle(api, made)
    assert roll().summary == {"unchanged": 1}
    api.patch(KEY, {"data": {"other": encoded(canary())}})

    assert roll().summary == {"restarted": 1}


# loss of the key


LOSSES: dict[str, Callable[[Api], object]] = {
    "emptied": lambda api: set_key(api, None),
    "truncated": lambda api: set_key(api, canary()[-3:]),
    "replaced": set_key,
    "an empty value": lambda api: api.patch(KEY, {"data": {"key": ""}}),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_another_key_rolls_nothing_and_the_next_change_rolls_once(api: Api, roll: Run, loss: str) -> None:
    space = api.namespace("shop")
    settings, login = api.create(configmap(space)), api.create(secret(space))
    made = api.create(workload(space, pod=MIXED))
    before = with_baseline(api, roll, made)
    changed(api, settings)
    changed(api, login, user=canary())
    LOSSES[loss](api)

    if loss != "replaced":
        assert roll().summary == {"configured": 1, "skipped": 1}
    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1})
    assert reason(ran, "baseline-recorded").startswith("its baseline was computed with another key")
    assert settle(api, made)["spec"] == before["spec"]
    assert roll().summary == {"unchanged": 1}
    changed(api, login, user=canary())
    assert roll().summary == {"restarted": 1}


def test_a_baseline_of_a_release_without_a_key_is_replaced_without_a_roll(api: Api, roll: Run) -> None:
    """Its version is 1, and its fingerprints of Secrets are keyed with their uids."""
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(secret(space))
    made = [api.create(workload(space, name, pod=pod)) for name, pod in (("mixed", MIXED), ("plain", FROM_A_VOLUME))]
    assert roll().summary == {"annotated": 2}
    current = [stamp(settle(api, each)) for each in made]
    assert [each["version"] for each in current] == [2, 1], "a release without a key would compare version 1"
    older = {"version": 1, "uid": current[0]["uid"], "sources": {**current[0]["sources"], "secret/login": "0" * 32}}
    api.patch(made[0], {"metadata": {"annotations": {BASELINE: json.dumps(older)}}})
    before = settle(api, made[0])
    changed(api, configmap(space))

    assert roll().summary == {"annotated": 1, "restarted": 1}

    assert settle(api, made[0])["spec"] == before["spec"]


@pytest.mark.parametrize(("key_id", "summary"), [(None, {"restarted": 1}), ("0" * 16, {"annotated": 1})])
def test_a_forged_baseline_rolls_no_other_workload(
    api: Api, roll: Run, key_id: str | None, summary: dict[str, int]
) -> None:
    """The id of the key is in every baseline. A tenant can forge a baseline only to roll a workload of their own."""
    for space in (spaces := [api.namespace("tenant"), api.namespace("shop")]):
        api.create(secret(space))
        api.create(workload(space, pod=LOGIN))
    assert roll().summary == {"annotated": 2}
    theirs, _ = (settle(api, workload(space)) for space in spaces)
    forged = {**stamp(theirs), "sources": {"secret/login": "0" * 32}, **({"key": key_id} if key_id else {})}
    api.patch(theirs, {"metadata": {"annotations": {BASELINE: json.dumps(forged)}}})
    settle(api, theirs)

    assert roll().summary == {**summary, "unchanged": 1}


# runs without a key


def check_others_are_served(api: Api, space: str, ran: Ran) -> None:
    """Check that only the workload that uses a Secret is unreadable."""
    assert (ran.exit_code, ran.summary) == (2, {"annotated": 1, "unreadable": 1})
    assert roll_annotations(api.get(workload(space, "plain")))[0]
    assert roll_annotations(api.get(workload(space, "mixed")))[0] is None


@pytest.fixture
def space(api: Api, installed: Path) -> str:
    """Return a namespace with workload `plain`, which uses a ConfigMap, and `mixed`, which also uses a Secret."""
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(secret(space))
    api.create(workload(space, "plain"))
    api.create(workload(space, "mixed", pod=MIXED))
    return space


def test_a_missing_secret_of_the_key_is_named_and_does_not_stop_others(api: Api, roll: Run, space: str) -> None:
    api.delete(KEY)

    ran = roll()

    check_others_are_served(api, space, ran)
    assert "secret/roll-workloads-key in namespace kube-chores does not exist; the manifests" in reason(
        ran, "unreadable"
    )


@pytest.mark.parametrize(
    ("value", "applied"),
    [(None, {}), ("", {"app.kubernetes.io/managed-by": "Helm"})],
    ids=["empty", "with a key, and applied by Helm"],
)
def test_a_copy_is_not_the_key(api: Api, roll: Run, space: str, value: str | None, applied: dict[str, str]) -> None:
    """The author of its source knows the key, and could guess values of Secrets."""
    made = workload(space, "mixed")
    assert roll().summary == {"annotated": 2}
    before = roll_annotations(api.get(made))
    copy = stamps.stamp("sync-copies", "kube-chores", "any", f"{space}/roll-workloads-key", "0" * 32)
    labels = {"app.kubernetes.io/component": "roll-workloads", **copy.labels, **applied}
    api.patch(KEY, {"metadata": {"labels": labels, "annotations": dict(copy.annotations)}})
    set_key(api, value)
    key = key_of(api)
    changed(api, secret(space), user=canary())

    ran = roll()

    assert (ran.exit_code, ran.summary) == (2, {"unchanged": 1, "unreadable": 1})
    assert roll_annotations(api.get(made)) == before
    assert key_of(api) == key
    assert reason(ran, "unreadable").endswith(
        "secret/roll-workloads-key in namespace kube-chores has the label kubechores.dev/job of a copy,"
        " so its author may be a tenant; delete it, and apply the manifests again"
    )


@pytest.mark.usefixtures("installed")
def test_a_run_on_a_laptop_needs_the_flag_key_secret_and_no_variable_replaces_it(api: Api, space: str) -> None:
    env = {"CHORES_KEY_SECRET": "kube-chores/roll-workloads-key"}
    run = runs("roll-workloads", api.service_account_kubeconfig("kube-chores", "roll-workloads"), env)

    ran = run("--settle", "0", "--cool-down", "0")

    check_others_are_served(api, space, ran)
    assert "--key-secret kube-chores/roll-workloads-key" in reason(ran, "unreadable")


def test_a_secret_that_is_named_by_mistake_is_not_filled(api: Api, roll: Run, space: str) -> None:
    before = api.get(secret(space))

    ran = roll("--key-secret", f"{space}/login", kubeconfig=api.kubeconfig)

    check_others_are_served(api, space, ran)
    assert f"secret/login in namespace {space} has no `key` of at least 32 bytes" in reason(ran, "unreadable")
    assert api.get(secret(space)) == before


@pytest.mark.parametrize("given", ["login", "shop/", "/login", "shop/a/b", "Shop/login"])
def test_an_invalid_key_secret_is_refused(given: str) -> None:
    refused = CliRunner().invoke(chores, ["roll-workloads", "--key-secret", given])

    assert (refused.exit_code, "is not NAMESPACE/NAME" in refused.stderr) == (2, True)
