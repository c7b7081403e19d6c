"""Features of the embedded cluster for tests: faults with callbacks, and clusters that start as a copy."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jobs.commands.demo import NOT_INSTALLED
from kubesandbox import Fault, Sandbox
from kubesandbox.api.controllers import Controllers
from kubesandbox.schema.cel_rules import RuleSet
from tests import embedded
from tests.apis import Api, sandbox_api, wait_for
from tests.manifests import ROOT, load
from tests.mirrors import registry_mirror
from tests.worlds import configmap


@pytest.mark.parametrize(("kind", "exists"), [("call-before", False), ("call-after", True)])
def test_a_fault_calls_back_before_a_request_is_handled_or_after(tmp_path: Path, kind: str, exists: bool) -> None:
    found: list[bool] = []
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        look = Fault("POST", kind=kind, call=lambda: found.append(api.get(configmap("default")) is not None))  # type: ignore[arg-type]
        sandbox.inject(look)
        api.create(configmap("default"))

    assert found == [exists]


def test_faults_apply_in_the_order_of_their_injection(tmp_path: Path) -> None:
    called = threading.Event()
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        sandbox.inject(Fault("POST", kind="call-before", call=called.set))
        sandbox.inject(Fault("POST", kind="reset-before"))
        with pytest.raises(OSError):
            api.create(configmap("default"))

        assert called.is_set()
        assert api.get(configmap("default")) is None


@pytest.mark.parametrize("fault", [{"kind": "call-before"}, {"kind": "delay", "call": print}])
def test_a_fault_has_a_call_if_its_kind_requires_one(fault: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="have a `call`"):
        Fault(**fault)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have a `call`"):
        Fault.parse("GET * kind=call-after")


def test_a_cluster_starts_as_a_copy_of_another_and_changes_independently(tmp_path: Path) -> None:
    def apis(sandbox: Sandbox) -> Api:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return sandbox_api(sandbox, folder)

    with Sandbox() as first:
        made = apis(first).create(configmap("default"))
        token = apis(first).service_account_token("default", "default")
        with Sandbox(of=first) as second:
            one, other = apis(first), apis(second)
            assert other.get(made) == one.get(made) == {"apiVersion": "v1", "kind": "ConfigMap"} | made
            assert other.request("GET", "/api/v1/namespaces/default", token=token)[0] == 403  # known, without rights
            other.patch(made, {"data": {"a": "changed"}})
            one.delete(made)
            assert one.get(made) is None
            assert (other.get(made) or {})["data"]["a"] == "changed"


def test_a_rule_of_a_whole_object_sees_only_the_name_of_its_metadata() -> None:
    rules = RuleSet({"x-kubernetes-validations": [{"rule": "self.metadata.name == 'hub'"}]})
    odd = {"name": "hub", "managedFields": [{"fieldsV1": {"f:a": 10**30}}]}

    assert rules.causes({"metadata": odd}, None) == []
    assert len(rules.causes({"metadata": {"name": "other"}}, None)) == 1


def test_copies_of_a_cluster_change_the_schema_of_the_same_crd_differently(tmp_path: Path) -> None:
    crd = next(each for each in load(ROOT / "cronjobs" / "crds") if each["spec"]["names"]["kind"] == "RegistryMirror")
    (version,) = crd["spec"]["versions"]
    found = []
    for most in (1, 99):
        rule = {"rule": f"size(self.metadata.name) <= {most}", "message": "too long"}
        schema = version["schema"]["openAPIV3Schema"] | {"x-kubernetes-validations": [rule]}
        with Sandbox(of=embedded.installed()) as sandbox:
            (folder := tmp_path / str(most)).mkdir()
            api = sandbox_api(sandbox, folder)
            api.patch(crd, {"spec": {"versions": [{**version, "schema": {"openAPIV3Schema": schema}}]}})
            mirror = registry_mirror("hub")
            found.append(api.request("POST", api.path(mirror, named=False), mirror)[0])
    assert found == [422, 201]


def run_without(module: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command of `python -m` in a process in which a module cannot be imported."""
    blocked = (
        f"import runpy, sys; sys.modules[{module!r}] = None; runpy.run_module({command[0]!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", blocked, *command[1:]], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(("module", "package"), [("celpy", "cel-python"), ("jsonpatch", "jsonpatch")])
@pytest.mark.parametrize(("command", "code"), [(["kubesandbox"], 1), (["jobs", "demo"], 2)], ids=str)
def test_without_its_extra_the_command_prints_how_to_install_it(
    module: str, package: str, command: list[str], code: int
) -> None:
    done = run_without(module, command)

    assert (done.returncode, done.stdout) == (code, "")
    advice = f"the embedded cluster needs {package}: run pip install -e '.[sandbox]' in a clone of the repository"
    assert done.stderr.lower() == f"error: {advice}\n"


def test_without_the_embedded_cluster_the_demo_prints_where_it_runs() -> None:
    done = run_without("kubesandbox", ["jobs", "demo"])

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {NOT_INSTALLED}\n"


def test_a_controller_that_is_late_leaves_an_object_that_was_recreated(tmp_path: Path) -> None:
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        late = Controllers(sandbox.cluster)  # it starts from here
        sandbox._controllers.stop()
        made = api.create(configmap("default"))
        api.call("DELETE", f"{api.path(made)}?propagationPolicy=Orphan")
        api.patch(made, {"metadata": {"finalizers": None}})
        again = api.create(configmap("default"))
        late.start()
        try:
            barrier = api.create(configmap("default", "barrier"))
            api.call("DELETE", f"{api.path(barrier)}?propagationPolicy=Orphan")
            wait_for(lambda: api.get(barrier) is None, "the controller to react to the last change")
        finally:
            late.stop()

        assert api.read(again)["metadata"]["uid"] == again["metadata"]["uid"]
