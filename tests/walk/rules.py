"""The fields of CopyratorRules. `@` in a name stands for the end of all names of a test."""

from tests.walk.walk import Field, Object

CONFIGMAPS: Object = {"ruleType": "configmap", "namespaces": ["home@"], "targets": {"include": ["team-*@"]}}
SECRETS: Object = {**CONFIGMAPS, "ruleType": "secret"}
LABELLED: Object = {**CONFIGMAPS, "selector": {"matchLabels": {"copyrator": "true"}}}
ONE: Object = {**CONFIGMAPS, "names": ["settings"]}
FORM: Object = {**SECRETS, "names": ["ca-1"], "keys": {"include": ["ca.crt"]}}
BUNDLE: Object = {
    **CONFIGMAPS,
    "selector": {"matchLabels": {"trust": "internal"}},
    "targetName": "bundle",
    "keys": {"include": ["*.crt"]},
}
PULL: Object = {**SECRETS, "names": ["pull"]}
EXISTS, LABEL = {"key": "stage", "operator": "Exists"}, {"key": "copyrator", "operator": "Exists"}
NO_STAGE = {"key": "stage", "operator": "DoesNotExist"}
TYPE = {"set": "Default is Opaque.", "remove": "Default is Opaque."}
KEYS = "is missing, or the job has no right to bind the ClusterRole. Copies stay"
ADOPTED = "An adopted object is a copy from then on"
CLUSTERS = "The other fields of targets select namespaces there."
COLLISION = "| several copies | anything | `collision` | leaves it |"
TIER = {"key": "tier", "operator": "In", "values": ["web"]}


def _selecting(**expression: object) -> Object:
    """Return a base with one expression, and a label: an expression alone must name a label that sources have."""
    return {
        **LABELLED,
        "selector": {"matchLabels": {"copyrator": "true"}, "matchExpressions": [{**EXISTS, **expression}]},
    }


def _targeting(expression: Object) -> Object:
    return {**ONE, "targets": {"include": ["team-*@"], "namespaceSelector": {"matchExpressions": [expression]}}}


FIELDS = [
    Field("ruleType", ["configmap", "secret"], LABELLED, ["pod", ""]),
    Field("namespaces", [["home@"], ["annex@"], ["home@", "annex@"]], LABELLED, [["Home"], ["home@", "home@"]]),
    Field(
        "selector",
        [{"matchLabels": {"stage": "prod"}}, {"matchLabels": {"copyrator": "true"}}],
        {**CONFIGMAPS, "names": ["settings", "theme"]},
    ),
    Field("selector.matchLabels", [{"copyrator": "true"}, {"copyrator": "true", "stage": "prod"}], CONFIGMAPS),
    Field(
        "selector.matchLabels",
        [{"copyrator": "true"}, {"copyrator": "true", "stage": "prod"}],
        {**CONFIGMAPS, "selector": {"matchExpressions": [LABEL]}},
        about="with an expression",
    ),
    Field("selector.matchExpressions", [[LABEL], [EXISTS], [LABEL, EXISTS]], CONFIGMAPS),
    Field("selector.matchExpressions", [[NO_STAGE], [EXISTS], [LABEL, EXISTS]], LABELLED, about="with labels"),
    Field("selector.matchExpressions[].key", ["stage", "copyrator"], _selecting(), ["", "a" * 318]),
    Field("selector.matchExpressions[].operator", ["In", "NotIn"], _selecting(values=["prod"])),
    Field("selector.matchExpressions[].operator", ["Exists", "DoesNotExist"], _selecting(), about="without values"),
    Field(
        "selector.matchExpressions[].values",
        [["prod"], ["test"], ["prod", "test"]],
        {**CONFIGMAPS, "selector": {"matchExpressions": [{"key": "stage", "operator": "In"}]}},
    ),
    Field("names", [["settings"], ["theme"], ["settings", "theme"]], CONFIGMAPS, [["A"], ["a", "a"]]),
    Field("names", [["settings"], ["theme"], ["settings", "theme"]], LABELLED, [["A"]], about="with a selector"),
    Field("keys", [{"include": ["a"]}, {"rename": {"b": "x"}}], ONE),
    Field("keys.include", [["a"], ["b"], ["b", "a"]], ONE, [["a/b"]]),
    Field(
        "keys.include",
        [["a"], ["raw"], ["a", "raw"]],
        {**ONE, "keys": {"rename": {"b": "x"}}},
        [["a/b"]],
        about="with rename",
    ),
    Field("keys.rename", [{"a": "x"}, {"a": "x", "b": "y"}], ONE, [{"a": "a"}, {"*": "b"}, {"a": "c", "b": "c"}]),
    Field(
        "keys.rename",
        [{"b": "x"}, {"b": "x", "a": "y"}],
        {**ONE, "keys": {"include": ["a"]}},
        [{"a": "a"}],
        about="with include",
    ),
    Field("copyAs", [{"kind": "ConfigMap"}, {"kind": "Secret"}], FORM, stays={"set": KEYS}, differs={"remove": KEYS}),
    Field("copyAs.kind", ["ConfigMap", "Secret"], FORM, ["Pod"]),
    Field("copyAs.type", ["Opaque"], {**FORM, "copyAs": {"kind": "Secret"}}, ["kubernetes.io/tls"], TYPE),
    Field(
        "merge",
        [{"key": "ca.crt"}, {"key": "all.crt"}],
        BUNDLE,
        stays={"set": COLLISION},
        differs={"remove": COLLISION},
    ),
    Field("merge.key", ["ca.crt", "all.crt"], BUNDLE, ["a/b"]),
    Field("attachTo", [{"serviceAccounts": ["build-1"]}, {"serviceAccounts": ["build-2"]}], PULL),
    Field("attachTo.serviceAccounts", [["build-1"], ["build-*"], ["build-1", "build-2"]], PULL, [["A"]]),
    Field("targetName", ["copied", "other"], ONE, ["A"]),
    Field("subjectNamespace", ["target", "source"], {**LABELLED, "ruleType": "rolebinding"}, ["home"]),
    Field("targets", [{"include": ["team-a@"]}, {"exclude": ["team-a@"]}], ONE),
    Field(
        "targets.namespaceSelector",
        [{"matchLabels": {"tier": "web"}}, {"matchLabels": {"tier": "data"}}],
        ONE,
    ),
    Field("targets.namespaceSelector.matchLabels", [{"tier": "web"}, {"tier": "web", "size": "big"}], ONE),
    Field("targets.namespaceSelector.matchExpressions", [[TIER], [TIER, {"key": "size", "operator": "Exists"}]], ONE),
    Field("targets.namespaceSelector.matchExpressions[].key", ["tier", "size"], _targeting(TIER), [""]),
    Field("targets.namespaceSelector.matchExpressions[].operator", ["In", "NotIn"], _targeting(TIER)),
    Field(
        "targets.namespaceSelector.matchExpressions[].operator",
        ["Exists", "DoesNotExist"],
        _targeting({"key": "size"}),
        about="without values",
    ),
    Field(
        "targets.namespaceSelector.matchExpressions[].values", [["web"], ["data"], ["data", "web"]], _targeting(TIER)
    ),
    Field(
        "targets.include",
        [
            ["team-a@"],
            ["team-*@"],
            ["team-a@", "team-b@"],
            ["team-a@", "kube-extra@"],
            ["closed@", "team-a@", "team-b@"],
        ],
        ONE,
        [["A"]],
    ),
    Field("targets.exclude", [["team-a@"], ["*-b@"], ["team-b@", "team-c@"]], ONE, [["A"]]),
    Field(
        "targets.clusters", [{}, {"names": ["eu-*"]}], ONE, nothing={"change to value 2": CLUSTERS, "empty": CLUSTERS}
    ),
    Field("targets.local", [True, False], {**ONE, "targets": {"include": ["team-*@"], "clusters": {}}}),
    Field(
        "conflict",
        ["Adopt", "Skip"],
        {**CONFIGMAPS, "names": ["taken"]},
        ["Force"],
        nothing={"remove": ADOPTED, "change to value 2": ADOPTED},
        stays=dict.fromkeys(("set", "create with Adopt"), ADOPTED),
        differs=dict.fromkeys(("remove", "change to value 2"), ADOPTED),
    ),
    Field(
        "orphans", ["Retain", "Delete"], ONE, ["Keep"], stays={"create with Retain": "with `orphans: Retain` it stays"}
    ),
    Field("metadata", [{"labels": {"x": "y"}}, {"copyAnnotations": ["note"]}], ONE),
    Field("metadata.labels", [{"x": "y"}, {"x": "z"}, {"x": "y", "w": "v"}], ONE, [{"a b": "c"}, {"a": "b c"}]),
    Field("metadata.annotations", [{"x": "y"}, {"x": ""}, {"x": "y", "w": "v"}], ONE, [{"a b": "c"}]),
    Field("metadata.copyLabels", [["stage"], ["copyrator"], ["stage", "copyrator"]], ONE, [["a b"], [""]]),
    Field("metadata.copyAnnotations", [["note"], ["other"], ["note", "other"]], ONE, [["a b"], [""]]),
]
_OF_TWO: Object = {**ONE, "targets": {"include": ["team-*"], "clusters": {}}}
_ENV, _TEST = ({"key": "env", "operator": "In", "values": [each]} for each in ("prod", "test"))
_ZONE = {"key": "zone", "operator": "Exists"}
_OPERATOR = "targets.clusters.selector.matchExpressions[].operator"


def _of_clusters(**expression: object) -> Object:
    selector = {"matchExpressions": [expression]}
    return {**ONE, "targets": {"include": ["team-*"], "clusters": {"selector": selector}}}


# In two other clusters with a label zone=eu: one has labels env=prod and size=big, and two has env=test.
FIELDS_OF_CLUSTERS = [
    Field("targets.clusters.names", [["one@"], ["two@"], ["one@", "two@"]], _OF_TWO, [["A"]]),
    Field("targets.clusters.selector", [{"matchLabels": {"env": "prod"}}, {"matchLabels": {"env": "test"}}], _OF_TWO),
    Field(
        "targets.clusters.selector.matchLabels",
        [{"env": "test"}, {"env": "prod"}, {"zone": "eu", "env": "prod"}],
        _OF_TWO,
    ),
    Field("targets.clusters.selector.matchExpressions", [[_TEST], [_ENV], [_ZONE, _ENV]], _OF_TWO),
    Field(
        "targets.clusters.selector.matchExpressions[].key",
        ["env", "size"],
        _of_clusters(operator="In", values=["test", "big"]),
    ),
    Field(_OPERATOR, ["In", "NotIn"], _of_clusters(key="env", values=["prod"])),
    Field(_OPERATOR, ["Exists", "DoesNotExist"], _of_clusters(key="size"), about="without values"),
    Field(
        "targets.clusters.selector.matchExpressions[].values",
        [["prod"], ["test"], ["test", "prod"]],
        _of_clusters(key="env", operator="In"),
    ),
]
