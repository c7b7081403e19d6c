"""Tools that wait for custom resources: kstatus, the health checks for Argo CD, and kubectl wait."""

import json
import subprocess
from functools import cache

import pytest
import yaml
from lupa.lua51 import LuaError, LuaRuntime

from tests.api.conftest import Run
from tests.apis import Api, Object
from tests.control_plane import programs
from tests.manifests import ROOT
from tests.mirrors import Mirrors, registry_mirror
from tests.rates import RatesServer
from tests.registries import Registries
from tests.worlds import configmap, exchange_rate, rule

CHECKS = yaml.safe_load((ROOT / "cronjobs" / "argocd" / "health.yaml").read_text())["data"]
# The status in Argo CD for each of kstatus.
HEALTH = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}
LIBRARIES = "assert error getmetatable ipairs next pairs pcall select setmetatable table tonumber tostring type unpack"


@cache
def kstatus() -> str:
    return subprocess.run([ROOT / "tools" / "kstatus" / "build"], stdout=subprocess.PIPE, text=True, check=True).stdout


def computed(script: str, obj: Object) -> str:
    """Return the health of an object as Argo CD computes it, in Lua 5.1 with the functions that a check may use.

    These are of the base and table libraries: https://argo-cd.readthedocs.io/en/stable/operator-manual/health/
    Argo CD also has os.time and os.date. But a status has all that a check of ours is to depend on.
    """
    lua = LuaRuntime(register_eval=False)
    check = lua.eval(
        """
        function(script, object, names)
          local allowed = {obj = object}
          for name in names:gmatch("%S+") do allowed[name] = _G[name] end
          debug.setmetatable("", nil)
          return setfenv(assert(loadstring(script)), allowed)().status
        end
        """
    )
    return str(check(script, lua.table_from(obj, recursive=True), LIBRARIES))


def health(obj: Object) -> str:
    """Return the health of a custom resource in Argo CD with the shipped check."""
    return computed(CHECKS[f"resource.customizations.health.kubechores.dev_{obj['kind']}"], obj)


def assert_status(api: Api, obj: Object, status: str, why: str = "") -> None:
    """Assert that an object has this status in kstatus, which needs a program, and the same in Argo CD."""
    found = api.read(obj)
    if api.kind == "real":
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": [found]})
        done = subprocess.run([kstatus().strip()], input=items, stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout.strip() == status, why
    types = {each["type"]: each for each in found["status"]["conditions"]}
    assert len(types) == len(found["status"]["conditions"])
    extra = types.keys() - {"Ready"}
    if "observedGeneration" in found["status"]:
        assert {each["observedGeneration"] for each in types.values()} == {found["status"]["observedGeneration"]}
        assert len(extra) == (types["Ready"]["status"] != "True")
        assert {types[each]["status"] for each in extra} <= {"True"}
    assert health(found) == HEALTH[status], why


def waits(api: Api, obj: Object, seconds: int = 0) -> bool:
    """Whether kubectl wait ends: the embedded server has no watch by name that it needs."""
    metadata = obj["metadata"]
    words = [
        "wait",
        "--for=condition=Ready",
        f"{obj['kind']}.kubechores.dev/{metadata['name']}",
        f"--timeout={seconds}s",
    ]
    scope = ["-n", metadata["namespace"]] if "namespace" in metadata else []
    command = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), f"--cache-dir={api.folder}", *words]
    return subprocess.run([*command, *scope], capture_output=True, timeout=300, check=False).returncode == 0


@pytest.mark.parametrize("used", ["os.time()", "io.open('/etc/passwd')", "require('os')", "('a'):upper()"])
def test_a_health_check_has_only_the_functions_of_argo_cd(used: str) -> None:
    script, obj = "return {status = obj.kind}", {"kind": "Healthy"}

    assert computed(script, obj) == "Healthy"
    with pytest.raises(LuaError):
        computed(f"local _ = {used}; {script}", obj)


def test_a_rule_is_in_progress_until_its_copies_exist_and_failed_if_a_person_must_act(
    api: Api, sync: Run, home: str, team: str
) -> None:
    made = api.create(rule("settings", home, team))
    assert_status(api, made, "InProgress", "no run has read it")
    sync()
    assert_status(api, made, "InProgress", "its source may still be created")

    api.create(configmap(home))
    sync()
    assert_status(api, made, "Current")
    assert sync().summary == {"unchanged": 1}
    if api.kind == "real":
        assert waits(api, made, 1)

    api.patch(made, {"spec": {"keys": {"include": ["typo"]}}})
    assert_status(api, made, "InProgress", "no run has read the change")
    sync()
    assert_status(api, made, "Failed")
    if api.kind == "real":
        assert not waits(api, made)
    api.patch(made, {"spec": {"keys": None}})
    sync()
    assert_status(api, made, "Current")


def test_a_rate_is_failed_if_a_person_must_act(api: Api, fetch: Run, rates: RatesServer, home: str) -> None:
    made = api.create(exchange_rate(home))
    assert_status(api, made, "InProgress")
    fetch()
    assert_status(api, made, "Current")
    if api.kind == "real":
        assert waits(api, made, 1)

    other = api.create(exchange_rate(home, "xts", currency="XTS"))
    fetch()
    assert_status(api, other, "InProgress", "a provider may publish it")
    same = api.create(exchange_rate(home, "again", configMapName="usd"))
    fetch()
    assert_status(api, same, "Failed")


def test_a_mirror_is_in_progress_while_a_repair_can_correct_it(
    api: Api, mirrors: Mirrors, audit: Run, probe: Run, registries: Registries
) -> None:
    created = mirrors.create("new")
    assert_status(api, created, "InProgress")
    audit()
    assert_status(api, created, "InProgress", "its resources are missing")

    healthy = mirrors.healthy(upstream=registries.upstream)
    made = registry_mirror(healthy.registry_mirror.name)
    probe()
    assert_status(api, made, "Current")
    if api.kind == "real":
        assert waits(api, made, 1)
    mirrors.specify(healthy, credentialsSecret="missing")
    probe()
    assert_status(api, made, "Failed", "somebody must create the Secret")
