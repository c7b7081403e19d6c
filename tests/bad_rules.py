"""Specs of rules that are not valid, with the message of the command and of both API servers."""

from typing import Any

NAMED: dict[str, Any] = {"ruleType": "secret", "names": ["login"]}
FORM: dict[str, Any] = {**NAMED, "keys": {"include": ["ca.crt"]}, "copyAs": {"kind": "ConfigMap"}}
BUNDLE: dict[str, Any] = {"merge": {"key": "ca.crt"}, "targetName": "trust"}
ATTACHED: dict[str, Any] = {"attachTo": {"serviceAccounts": ["default"]}}
# The spec, the field in it, and the message.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {**NAMED, "ruleType": "limitrange", "keys": {"include": ["a"]}},
        "keys",
        "only a ruleType of configmap or secret has keys: remove this field",
    ),
    (
        {**NAMED, "keys": {"rename": {"a": "a"}}},
        "keys.rename",
        "renames a key to itself: write it in include",
    ),
    (
        {**NAMED, "keys": {"rename": {"a": "c", "b": "c"}}},
        "keys.rename",
        "gives two keys the same name: a copy has each key once",
    ),
    (
        {**NAMED, "names": ["a", "b"], "targetName": "c"},
        "targetName",
        "names has more than one entry, and copies with the same name collide: use a rule for each source",
    ),
    (
        {**NAMED, "subjectNamespace": "target"},
        "subjectNamespace",
        "only a ruleType of rolebinding has subjects: remove this field",
    ),
    (
        {**FORM, "ruleType": "configmap"},
        "copyAs",
        "only Secrets can be copied as another kind or type: remove this field",
    ),
    (
        {**FORM, "keys": {"rename": {"a": "b"}}},
        "copyAs",
        "keys.include is not set: name the keys that are copied",
    ),
    (
        {**FORM, "copyAs": {"kind": "ConfigMap", "type": "Opaque"}},
        "copyAs.type",
        "a ConfigMap has no type: remove this field",
    ),
    (
        {**FORM, "metadata": {"copyAnnotations": ["a"]}},
        "metadata.copyAnnotations",
        "annotations of a Secret may have its values: remove this field, or copyAs",
    ),
    (
        {**FORM, **BUNDLE, "metadata": {"copyLabels": ["a"]}},
        "merge",
        "the copy has many sources: remove metadata.copyLabels and metadata.copyAnnotations",
    ),
    (
        {"ruleType": "limitrange", "names": ["a"], **BUNDLE},
        "merge",
        "only a ruleType of configmap or secret has certificates: remove this field",
    ),
    (
        {**NAMED, **BUNDLE},
        "merge",
        "a Secret of another type cannot have its key: set copyAs",
    ),
    (
        {"ruleType": "configmap", "names": ["a"], "merge": {"key": "a"}},
        "merge",
        "targetName is not set: name the copy",
    ),
    (
        {**FORM, **BUNDLE, "keys": {"include": ["a"], "rename": {"a": "b"}}},
        "merge",
        "the copy has only the key merge.key: remove keys.rename",
    ),
    (
        {"ruleType": "configmap", "names": ["a"], **ATTACHED},
        "attachTo",
        "only Secrets for pulls can be attached, without copyAs: remove this field",
    ),
    (
        {**FORM, **ATTACHED},
        "attachTo",
        "only Secrets for pulls can be attached, without copyAs: remove this field",
    ),
]
