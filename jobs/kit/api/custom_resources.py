"""Read kubechores.dev custom resources from the cluster or from files. An invalid one does not affect the others."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from jobs.kit.api.cluster import Cluster, List, retry_if_expired
from jobs.kit.values.errors import ApiError, ConfigurationError, InvalidObjectError, StoppedError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid, InvalidObject, Metadata, members, once_if_short
from jobs.kit.values.resources import Resource, is_name
from jobs.kit.values.text import cut

# A run has 128 MiB of memory (cronjobs/). No status of a job is larger: it lists 100 conflicts at most.
_MOST_SPEC_BYTES = 256 << 10
_MOST_STATUS_BYTES = 512 << 10
_WAS_DROPPED = (
    "was set, and an older CRD dropped it: install the CRDs of this version with 'chores install-crds' or 'kubectl "
    "apply -k cronjobs/crds', then apply this {} again"
)
_MOST_LEVELS = 10  # of a spec, more than our CRDs have

# Of all files together: more would fill the terminal or the log.
MAX_PROBLEMS = 1000

Parsed = TypeVar("Parsed")
Parse = Callable[[Head, bytes], Parsed | Invalid]


class _CustomResource(Struct):
    """A custom resource as the API serves it. Spec and status stay raw, so that one invalid item fails no list."""

    metadata: Metadata
    spec: Raw = Raw()
    status: Raw = Raw()


class _Parts(NamedTuple):
    head: Head
    spec: bytes
    problems: tuple[str, ...]  # none: the spec is what clients have set, which may not be valid either
    known: Any = None


def from_cluster(
    cluster: Cluster,
    resource: Resource,
    parse: Parse[Parsed],
    namespace: str = "",
    most: int = sys.maxsize,
    known: Mapping[Head, Parsed] = {},
) -> tuple[tuple[Parsed, ...], tuple[Invalid, ...], Mapping[str, int]]:
    """Read the custom resources of a namespace, or of all namespaces: of each the first `most` by name.

    Those that were read before are `known`, by their heads: they are parsed again only if they changed.
    Return the valid and the invalid ones, sorted, and by namespace how many others there are.

    Raises:
        ConfigurationError: the CRD is not installed, or does not serve the version.
        ApiError: the custom resources cannot be read.
    """

    def read() -> tuple[list[_Parts | InvalidObject], Counter[str]]:
        numbers: Counter[str] = Counter()

        def split(each: _CustomResource) -> _Parts | None:
            numbers[each.metadata.namespace] += 1
            return _split(resource, each, known) if numbers[each.metadata.namespace] <= most else None

        objects = cluster.objects(resource, _CustomResource, split, namespace=namespace)
        return [each for each in objects if each is not None], numbers

    try:
        objects, numbers = retry_if_expired(read)
    except ApiError as error:
        if error.status != 404:
            raise
        raise not_installed(resource, ", or name a file with -f") from error
    found = sorted((each for each in objects if not isinstance(each, InvalidObject)), key=lambda each: each.head.key)
    undecoded = [Invalid(Head(each.key), (each.error.message,)) for each in objects if isinstance(each, InvalidObject)]
    parsed = [each.known or _parsed(each, parse) for each in found]
    invalid = [each for each in parsed if isinstance(each, Invalid)]
    return (
        tuple(each for each in parsed if not isinstance(each, Invalid)),
        (*invalid, *sorted(undecoded, key=lambda each: each.head.key)),
        {name: number - most for name, number in numbers.items() if number > most},
    )


def _parsed(read: _Parts, parse: Parse[Parsed]) -> Parsed | Invalid:
    return Invalid(read.head, read.problems) if read.problems else parse(read.head, read.spec)


def heads_of(cluster: Cluster, requested: Iterable[tuple[Resource, ObjectKey]]) -> Iterator[Head]:
    """Yield the heads of these custom resources that can be read. Each is a list: no job may get them by name.

    A run that is stopped yields none.
    """
    lists = (
        List(resource, _CustomResource, partial(_split, resource), key.namespace, fields=f"metadata.name={key.name}")
        for resource, key in requested
    )
    with suppress(StoppedError):
        for _, found in cluster.lists(lists):
            if not isinstance(found, ApiError):
                yield from (each.head for each in found if not isinstance(each, InvalidObject))


def not_installed(resource: Resource, otherwise: str = "") -> ConfigurationError:
    """Return the error of a cluster without the CRD, or without its version; `otherwise` is another remedy."""
    group, _, version = resource.api_version.partition("/")
    return ConfigurationError(
        f"the CRD {resource.plural}.{group} is not installed, or does not serve {version}; install the CRDs with "
        f"'chores install-crds' or 'kubectl apply -k cronjobs/crds'{otherwise}"
    )


def _split(resource: Resource, read: _CustomResource, known: Mapping[Head, Any] = {}) -> _Parts:
    """Return the parts of a custom resource; raise an InvalidObjectError if the spec is too large."""
    if len(read.spec) > _MOST_SPEC_BYTES:
        raise InvalidObjectError(f"spec has {len(read.spec) >> 10} KiB, the limit is {_MOST_SPEC_BYTES >> 10} KiB")
    at = read.metadata
    key = ObjectKey(resource.kind, at.name, at.namespace)
    status = bytes(read.status) if len(read.status) <= _MOST_STATUS_BYTES else b""
    terminating = at.deletion_timestamp is not None
    created = at.creation_timestamp or ""
    head = Head(key, at.uid, at.generation, terminating, status, created, at.resource_version)
    if head in known:
        return _Parts(head, b"", (), known[head])
    dropped = _dropped(at, read.spec)
    problems = (f"spec.{cut(dropped[0])} {_WAS_DROPPED.format(resource.kind)}",) if dropped else ()
    return _Parts(head, bytes(read.spec), problems)


def _dropped(metadata: Metadata, spec: Raw) -> list[str]:
    """Return the fields that a client has set, and that the CRD of another version drops.

    Without them a spec means something else: all keys in place of some. The server keeps them in managedFields, and
    refuses null.
    """
    owned = (_owned(bytes(each.fields_v1)) for each in metadata.managed_fields or ())
    return sorted({name for each in owned for name in _missing("", each, spec)})


@once_if_short
def _owned(text: bytes) -> Mapping[str, Any]:
    """Return the fields below spec in a fieldsV1, as a tree."""
    return _tree(members(text).get("f:spec", Raw()), _MOST_LEVELS)


def _tree(owned: Raw, levels: int) -> Mapping[str, Any]:
    fields = members(owned) if levels else {}
    return {name[2:]: _tree(below, levels - 1) for name, below in fields.items() if name.startswith("f:")}


def _missing(path: str, owned: Mapping[str, Any], spec: Raw) -> Iterator[str]:
    there = members(spec) if owned else {}
    for name, below in owned.items():
        if name in there:
            yield from _missing(f"{path}{name}.", below, there[name])
        else:
            yield f"{path}{name}"


def from_files(
    filenames: Sequence[str],
    resource: Resource,
    parse: Parse[Parsed],
    namespace: str,
    *,
    any_namespace: bool = False,
    beyond_schema: Callable[[dict[str, Any]], list[str]] = lambda _spec: [],
) -> tuple[Parsed, ...]:
    """Read the custom resources in these files and validate them as the API server does; sort by name and namespace.

    `namespace` is the namespace of custom resources that name none. Others are refused unless `any_namespace` is set.
    `beyond_schema` finds problems that no schema describes, in a spec that has other problems.

    Raises:
        ConfigurationError: with all problems of all custom resources.
    """
    # YAML and jsonschema are imported only here: a run that reads the cluster does not need them.
    from jobs.kit import files

    found: dict[ObjectKey, Parsed] = {}
    documents, problems = files.documents(filenames)
    for where, content in documents:
        if len(problems) > MAX_PROBLEMS:
            break
        if not isinstance(content, dict) or content.get("kind") != resource.kind:
            continue
        given = content.get("metadata")
        metadata: dict[str, Any] = given if isinstance(given, dict) else {}
        name = str(metadata.get("name") or "(without a name)")
        key = ObjectKey(resource.kind, name, str(metadata.get("namespace") or namespace))
        wrong = files.schema_problems(content, resource.plural)
        wrong += _find_problems(content, metadata, resource, None if any_namespace else namespace)
        parsed = None if wrong else parse(Head(key), msgspec.json.encode(content["spec"]))
        if isinstance(parsed, Invalid):
            wrong = list(parsed.problems)
        elif parsed is None:
            wrong += beyond_schema(content["spec"]) if isinstance(content.get("spec"), dict) else []
        elif key in found:
            wrong = ["is in the files more than once; remove the others"]
        else:
            found[key] = parsed
        named = f"{where}: {files.shortened(f'{key.kind} {key.name}')}"
        problems += [f"{named}: {files.shortened(each)}" for each in _limit(wrong, files.MAX_PROBLEMS)]
    if not problems and not found:
        problems = [f"{', '.join(filenames)}: contains no {resource.kind}"]
    if problems:
        raise ConfigurationError(*_limit(problems, MAX_PROBLEMS))
    return tuple(parsed for _, parsed in sorted(found.items()))


def _limit(problems: Sequence[str], most: int) -> list[str]:
    more = ["there are more problems"] if len(problems) > most else []
    return [*problems[:most], *more]


def _find_problems(
    content: dict[str, Any], metadata: dict[str, Any], resource: Resource, namespace: str | None
) -> Iterator[str]:
    """Yield what the API server would refuse beyond the schema, and a namespace other than `namespace`, if set."""
    from jobs.kit.files import is_namespaced

    if content.get("apiVersion") != resource.api_version:
        yield f"apiVersion: must be {resource.api_version}, is {content.get('apiVersion')!r}"
    if not metadata.get("name"):
        yield "metadata.name: is required"
    # A name that is not valid could lead to another path of the API.
    for field in ("name", "namespace"):
        if metadata.get(field) and not is_name(metadata[field]):
            yield f"metadata.{field}: {metadata[field]!r} is not a valid name"
    if not is_namespaced(resource.plural):
        if metadata.get("namespace"):
            yield f"metadata.namespace: {resource.plural} are cluster-scoped; remove it"
    elif namespace is not None and metadata.get("namespace", namespace) != namespace:
        here = metadata["namespace"]
        yield f"metadata.namespace: is {here!r}, but {resource.plural} are read from {namespace!r}; use -n"
