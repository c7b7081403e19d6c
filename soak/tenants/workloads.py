"""Workloads that use ConfigMaps and Secrets, and what their users change."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from soak.invariants import rolls
from soak.invariants.rolls.workloads import KINDS, OPT_IN, Settings, deferral, is_available
from soak.lab import Action, Lab
from soak.observed import Invariant
from tests.apis import ApiError, Object
from tests.canary import canary
from tests.workloads import KEY, workload
from tests.worlds import encoded, namespace_object

IMAGE = "localhost/pause:1"
RUNNING = '[ "$A" = bad ] && exit 1; exec /busybox sleep 1000000'
FAILING = "exit 1"
STUCK_SECONDS = 20.0  # an administrator restarts a workload that is not available for this time
_ERRORS = (ApiError, OSError, http.client.HTTPException)

# The sources of each namespace, with the keys that a tenant changes. Pods do not start without the first three.
REQUIRED = {
    "settings": ("ConfigMap", ("a", "b", "c")),
    "files": ("ConfigMap", ("app.conf", "other.conf")),
    "login": ("Secret", ("user", "password")),
}
OPTIONAL = {"extra": ("ConfigMap", ("more",)), "token": ("Secret", ("value",))}
SOURCES = {**REQUIRED, **OPTIONAL}


@dataclass(frozen=True, eq=False)
class Slot:
    """A workload that exists most of the time; `uses` are fields of its pod template."""

    namespace: str
    kind: str
    name: str
    uses: Object
    opted_in: str | None = None

    @property
    def place(self) -> Object:
        """The workload, sufficient to read, patch or delete it."""
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "apps/v1", "kind": self.kind, "metadata": metadata}

    def manifest(self, level: int) -> Object:
        """Return the workload with one pod."""
        made = workload(self.namespace, self.name, self.kind, self.opted_in, self.uses)
        if self.kind != "DaemonSet":
            made["spec"]["replicas"] = 1
        pod = made["spec"]["template"]["spec"]
        pod |= {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}
        (container,) = pod["containers"]
        container |= {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command(RUNNING)}
        container["env"] = [{"name": "LEVEL", "value": str(level)}, *container.get("env", [])]
        return made


def command(script: str) -> list[str]:
    """Return the command of a container that runs a script."""
    return ["/busybox", "sh", "-c", script]


def _from_key(kind: str, name: str, key: str, **options: object) -> Object:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **options}}}


SLOTS = (
    Slot(
        "shop-1",
        "Deployment",
        "web",
        {
            "container": {
                "env": [
                    {"name": "A", **_from_key("configMap", "settings", "a")},
                    {"name": "USER", **_from_key("secret", "login", "user")},
                    {"name": "MORE", **_from_key("configMap", "extra", "more", optional=True)},
                ]
            }
        },
        "true",
    ),
    Slot(
        "shop-1",
        "Deployment",
        "api",
        {
            "container": {
                "envFrom": [
                    {"configMapRef": {"name": "settings"}},
                    {"secretRef": {"name": "token", "optional": True}},
                ]
            }
        },
        "true",
    ),
    Slot(
        "shop-2",
        "Deployment",
        "files",
        {
            "volumes": [
                {"name": "files", "configMap": {"name": "files"}},
                {"name": "extra", "configMap": {"name": "extra", "optional": True}},
                {"name": "login", "secret": {"secretName": "login", "items": [{"key": "user", "path": "name"}]}},
            ]
        },
    ),
    Slot(
        "shop-2",
        "DaemonSet",
        "agent",
        {
            "volumes": [{"name": "files", "configMap": {"name": "files"}}],
            "container": {"volumeMounts": [{"name": "files", "mountPath": "/app.conf", "subPath": "app.conf"}]},
        },
    ),
    Slot(
        "shop-3",
        "StatefulSet",
        "db",
        {
            "volumes": [
                {
                    "name": "all",
                    "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "login"}}]},
                }
            ]
        },
    ),
    Slot(
        "shop-3",
        "Deployment",
        "worker",
        {
            "initContainers": [
                {
                    "name": "init",
                    "image": IMAGE,
                    "command": ["/busybox", "true"],
                    "envFrom": [{"secretRef": {"name": "login"}}],
                }
            ],
            "container": {"env": [{"name": "A", **_from_key("configMap", "settings", "a")}]},
        },
        "true",
    ),
)
NAMESPACES = ("shop-1", "shop-2", "shop-3")
OPTED_IN = {"shop-2": "true", "shop-3": "true"}  # the annotation of namespaces at first


class Workloads:
    """Six workloads in three namespaces."""

    def __init__(self, lab: Lab, settings: Settings | None = None) -> None:
        self._api, self._journal, self._random = lab.api, lab.journal, lab.random("workloads")
        self._settings = settings or Settings()
        self._numbers = itertools.count(1)
        self._broken_since: dict[Slot, float] = {}
        for name in NAMESPACES:
            annotations = {OPT_IN: OPTED_IN[name]} if name in OPTED_IN else {}
            self._api.put(namespace_object(name, annotations=annotations))
            for source in REQUIRED:
                self._api.put(self._source(name, source))
        for slot in SLOTS:
            self._api.put(slot.manifest(0))

    # the part

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""
        return {
            "change-value": (14, self._change_value),
            "change-several": (4, self._change_several),
            "change-unused-key": (3, self._change_unused_key),
            "label-source": (3, self._label_source),
            "recreate-source": (4, self._recreate_source),
            "delete-source": (2, self._delete_source),
            "restore-sources": (9, self._restore_sources),
            "optional-source": (6, self._toggle_optional),
            "annotate-workload": (3, self._annotate_workload),
            "annotate-namespace": (2, self._annotate_namespace),
            "delete-workload": (2, self._delete_workload),
            "recreate-workload": (2, self._recreate_workload),
            "restore-workloads": (6, self._restore_workloads),
            "edit-template": (3, self._edit_template),
            "add-source": (2, self._add_source),
            "pause": (4, self._pause),
            "resume": (2, self._resume),
            "partition": (2, self._partition),
            "break-config": (2, self._break_config),
            "repair-config": (4, self._repair_config),
            "break-template": (1, self._break_template),
            "repair-template": (3, self._repair_template),
            "replace-key": (1, self._replace_key),
        }

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of rolls."""
        return rolls.invariants(self._settings)

    def end(self) -> None:
        """End nothing: all is in the cluster."""

    def resolve(self) -> None:
        """Restore what pods need, resume workloads, and restart those whose pods do not become available."""
        for repair in (self._restore_sources, self._repair_config, self._restore_workloads, self._repair_template):
            with contextlib.suppress(*_ERRORS):
                repair()
        for slot in SLOTS:
            with contextlib.suppress(*_ERRORS):
                self._release(slot)
                self._restart_if_stuck(slot)

    def _release(self, slot: Slot) -> None:
        found = self._api.get(slot.place)
        if not found:
            return
        if found["spec"].get("paused"):
            self._api.patch(slot.place, {"spec": {"paused": None}})
        if deferral(found) == "partition":
            self._set_partition(slot, 0)
        if (found["metadata"].get("annotations") or {}).get(OPT_IN) not in ("true", "false", None):
            self._api.patch(slot.place, {"metadata": {"annotations": {OPT_IN: "true"}}})

    def _restart_if_stuck(self, slot: Slot) -> None:
        """Restart a workload by hand, and delete the pod that a StatefulSet does not replace."""
        found = self._api.get(slot.place)
        if not found or is_available(found):
            self._broken_since.pop(slot, None)
            return
        since = self._broken_since.setdefault(slot, time.time())
        if time.time() - since < STUCK_SECONDS:
            return
        self._broken_since[slot] = time.time()
        stamp = {"kubectl.kubernetes.io/restartedAt": str(next(self._numbers))}
        self._api.patch(slot.place, {"spec": {"template": {"metadata": {"annotations": stamp}}}})
        if slot.kind == "StatefulSet":
            metadata = {"namespace": slot.namespace, "name": f"{slot.name}-0"}
            self._api.delete({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    # sources

    def _place(self, namespace: str, name: str) -> Object:
        return {"apiVersion": "v1", "kind": SOURCES[name][0], "metadata": {"namespace": namespace, "name": name}}

    def _source(self, namespace: str, name: str) -> Object:
        keys = SOURCES[name][1]
        return {**self._place(namespace, name), "data": {key: self._value(name) for key in keys}}

    def _value(self, name: str) -> str:
        return encoded(canary()) if SOURCES[name][0] == "Secret" else f"value-{next(self._numbers)}"

    def _create(self, obj: Object) -> None:
        self._api.call("POST", self._api.path(obj, named=False), obj)

    def _change(self, namespace: str, name: str) -> None:
        key = self._random.choice(SOURCES[name][1])
        self._api.patch(self._place(namespace, name), {"data": {key: self._value(name)}})

    def _change_value(self) -> None:
        self._change(self._random.choice(NAMESPACES), self._random.choice(list(REQUIRED)))

    def _change_several(self) -> None:
        namespace = self._random.choice(NAMESPACES)
        for name in REQUIRED:
            self._change(namespace, name)

    def _change_unused_key(self) -> None:
        place = self._place(self._random.choice(NAMESPACES), self._random.choice(["files", "login"]))
        value = f"unused-{next(self._numbers)}"
        data = {"unused": encoded(canary()) if place["kind"] == "Secret" else value}
        self._api.patch(place, {"data": data})

    def _label_source(self) -> None:
        place = self._place(self._random.choice(NAMESPACES), self._random.choice(list(REQUIRED)))
        self._api.patch(place, {"metadata": {"labels": {"example.com/level": str(next(self._numbers))}}})

    def _recreate_source(self) -> None:
        """Delete and create a source with the same values."""
        place = self._place(self._random.choice(NAMESPACES), self._random.choice(list(REQUIRED)))
        found = self._api.read(place) if self._api.get(place) else None
        if found:
            self._api.delete(place)
            self._create({**place, "data": found["data"]})

    def _delete_source(self) -> None:
        place = self._place(self._random.choice(NAMESPACES), self._random.choice(list(REQUIRED)))
        if self._api.get(place):
            self._api.delete(place)

    def _restore_sources(self) -> None:
        for namespace in NAMESPACES:
            for name in REQUIRED:
                if not self._api.get(self._place(namespace, name)):
                    self._create(self._source(namespace, name))

    def _toggle_optional(self) -> None:
        namespace, name = self._random.choice(NAMESPACES), self._random.choice(list(OPTIONAL))
        place = self._place(namespace, name)
        if self._api.get(place):
            self._api.delete(place)
        else:
            self._create(self._source(namespace, name))

    def _break_config(self) -> None:
        self._api.patch(self._place(self._random.choice(("shop-1", "shop-3")), "settings"), {"data": {"a": "bad"}})

    def _repair_config(self) -> None:
        for namespace in NAMESPACES:
            found = self._api.get(self._place(namespace, "settings"))
            if found and found["data"].get("a") == "bad":
                self._api.patch(self._place(namespace, "settings"), {"data": {"a": self._value("settings")}})

    def _replace_key(self) -> None:
        """Empty the key, as docs/roll-workloads.md describes it: the next run records baselines of Secrets again."""
        if self._random.random() < 0.5:
            self._api.patch(KEY, {"data": {"key": ""}})

    # workloads

    def _any(self, *kinds: str) -> Slot | None:
        """Return a workload of these kinds that exists."""
        slot = self._random.choice([each for each in SLOTS if each.kind in (kinds or KINDS)])
        return slot if self._api.get(slot.place) else None

    def _patch(self, patch: Callable[[Slot], Object], *kinds: str) -> None:
        if slot := self._any(*kinds):
            self._api.patch(slot.place, patch(slot))

    def _annotate_workload(self) -> None:
        value = self._random.choice(["true", "true", "true", "false", None, "yes"])
        self._patch(lambda _: {"metadata": {"annotations": {OPT_IN: value}}})

    def _annotate_namespace(self) -> None:
        place = namespace_object(self._random.choice(NAMESPACES))
        value = self._random.choice(["true", "true", "false", None])
        self._api.patch(place, {"metadata": {"annotations": {OPT_IN: value}}})

    def _delete_workload(self) -> None:
        if slot := self._any():
            self._api.delete(slot.place)

    def _recreate_workload(self) -> None:
        """Delete a workload and create it, with the annotations that it had: its baseline is of another uid."""
        slot = self._any()
        found = self._api.get(slot.place) if slot else None
        if not slot or not found:
            return
        self._api.delete(slot.place)
        made = slot.manifest(next(self._numbers))
        made["metadata"]["annotations"] = found["metadata"].get("annotations", {})
        made["metadata"]["annotations"].pop("deployment.kubernetes.io/revision", None)
        self._create(made)

    def _restore_workloads(self) -> None:
        for slot in SLOTS:
            if not self._api.get(slot.place):
                self._create(slot.manifest(next(self._numbers)))

    def _edit_template(self) -> None:
        self._edit_container(self._any(), lambda container: container["env"][0].update(value=self._value("settings")))

    def _add_source(self) -> None:
        """Let pods use another source, or no longer."""

        def edit(container: Object) -> None:
            names = [each["name"] for each in container["env"]]
            if "OTHER" in names:
                del container["env"][names.index("OTHER")]
            else:
                container["env"].append({"name": "OTHER", **_from_key("configMap", "files", "other.conf")})

        self._edit_container(self._any(), edit)

    def _edit_container(self, slot: Slot | None, edit: Callable[[Object], None]) -> None:
        found = self._api.get(slot.place) if slot else None
        if slot and found:
            containers = found["spec"]["template"]["spec"]["containers"]
            edit(containers[0])
            self._api.patch(slot.place, {"spec": {"template": {"spec": {"containers": containers}}}})

    def _break_template(self) -> None:
        self._edit_container(self._any(), lambda container: container.update(command=command(FAILING)))

    def _repair_template(self) -> None:
        for slot in SLOTS:
            found = self._api.get(slot.place)
            if found and found["spec"]["template"]["spec"]["containers"][0]["command"] == command(FAILING):
                self._edit_container(slot, lambda container: container.update(command=command(RUNNING)))

    def _pause(self) -> None:
        self._patch(lambda _: {"spec": {"paused": True}}, "Deployment")

    def _resume(self) -> None:
        for slot in SLOTS:
            found = self._api.get(slot.place)
            if found and found["spec"].get("paused"):
                self._api.patch(slot.place, {"spec": {"paused": None}})

    def _partition(self) -> None:
        if slot := self._any("StatefulSet"):
            self._set_partition(slot, self._random.choice([0, 0, 1]))

    def _set_partition(self, slot: Slot, partition: int) -> None:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
        self._api.patch(slot.place, {"spec": {"updateStrategy": rolling}})
