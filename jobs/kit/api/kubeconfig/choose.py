"""Read and merge kubeconfig files as kubectl does, and choose a context."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from jobs.kit.api.endpoint import read_limited
from jobs.kit.api.kubeconfig.structs import Cluster, Context, Kubeconfig, User
from jobs.kit.api.kubeconfig.validate import cluster_problems, context_problems, user_problems
from jobs.kit.values.errors import ConfigurationError

Named = TypeVar("Named")
_log = logging.getLogger("chores")


@dataclass(frozen=True)
class Chosen:
    """A context with its cluster and user, validated, with absolute paths."""

    source: str
    name: str
    context: Context
    cluster: Cluster
    user: User

    def problem(self, text: str) -> ConfigurationError:
        """Return the error for a field of this cluster or user."""
        return ConfigurationError(f"{_problem_in(self.source)}: context {self.name!r}: {text}")

    def read_pem(self, where: str, path: str, data: bytes) -> bytes:
        """Return the content of the file at `path`, or `data` if there is no path.

        Raises:
            ConfigurationError: the file cannot be read, or the content is not PEM.
        """
        try:
            content = read_limited(Path(path)) if path else data
        except OSError as error:
            raise self.problem(f"{where} cannot be read: {error}") from error
        if b"-----BEGIN " not in content:
            raise self.problem(f"{where if path else f'{where}-data'} is not PEM")
        return content


def choose(paths: str, context: str | None) -> Chosen:
    """Return this context, or the current one, of the files in `paths`, which are separated as in $KUBECONFIG.

    If several files have a cluster, user or context of one name, the first file counts.

    Raises:
        ConfigurationError: a file, or the context's cluster or user, is not valid; has every problem found.
    """
    found = [path for each in paths.split(os.pathsep) if each and (path := Path(each).expanduser()).exists()]
    if not found:
        raise ConfigurationError(f"{_problem_in(paths)}: the file does not exist")
    files = [_read(path) for path in found]
    contexts = _merge((each.name, each.context) for file in files for each in file.contexts)
    name = context or next((file.current_context for file in files if file.current_context), "")
    if not name:
        raise ConfigurationError(f"{_problem_in(paths)}: current-context is not set; use --context")
    if name not in contexts:
        names = ", ".join(sorted(contexts)) or "none"
        raise ConfigurationError(f"{_problem_in(paths)}: it has no context {name!r}; its contexts are: {names}")
    clusters = _merge((each.name, each.cluster) for file in files for each in file.clusters)
    users = _merge((each.name, each.user) for file in files for each in file.users)
    chosen = contexts[name]
    problems = [*context_problems(chosen, clusters, users)]
    cluster, user = clusters.get(chosen.cluster, Cluster()), users.get(chosen.user, User())
    problems = problems or [*cluster_problems(chosen.cluster, cluster), *user_problems(chosen.user, user)]
    if problems:
        raise ConfigurationError(*(f"{_problem_in(paths)}: context {name!r}: {problem}" for problem in problems))
    return Chosen(paths, name, chosen, cluster, user)


def _problem_in(path: object) -> str:
    return f"kubeconfig {path} cannot be used"


def _merge(named: Iterable[tuple[str, Named]]) -> dict[str, Named]:
    merged: dict[str, Named] = {}
    for name, value in named:
        merged.setdefault(name, value)
    return merged


def _read(path: Path) -> Kubeconfig:
    document = _load_document(path)
    try:
        config = msgspec.convert(document, Kubeconfig)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{_problem_in(path)}: {_format_error(str(error))}") from None
    if config.kind not in ("", "Config") or config.api_version not in ("", "v1"):
        raise ConfigurationError(f"{_problem_in(path)}: kind and apiVersion are not Config and v1")
    if repeated := [each for kind in ("clusters", "users", "contexts") for each in _find_repeated(kind, config)]:
        raise ConfigurationError(*(f"{_problem_in(path)}: {each}" for each in repeated))
    for field_path in _find_unknown(document, Kubeconfig):
        # Ignored as in kubectl. Logged, since with a typo in `as` the run would have more rights.
        _log.warning("kubeconfig %s: unknown field %s is ignored", path, field_path)
    _resolve_paths(config, path.absolute().parent)
    return config


def _load_document(path: Path) -> Any:
    from jobs.kit.files.documents import load

    try:
        text = read_limited(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{_problem_in(path)}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{_problem_in(path)}: it is not UTF-8") from None
    documents, problems = load(text)
    if problems:
        raise ConfigurationError(*(f"{_problem_in(path)}: {problem}" for problem in problems))
    return _normalize(documents[0] or {}) if documents else {}


def _normalize(value: Any, name: Any = "") -> Any:
    """Return the document without null fields, which count as not set, and without line breaks in base64 data."""
    if isinstance(value, dict):
        return {key: _normalize(each, key) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_normalize(each) for each in value]
    return "".join(value.split()) if isinstance(value, str) and str(name).endswith("-data") else value


def _format_error(error: str) -> str:
    """Return an error of msgspec with the field first, as in: users[0].user.as: expected `str`, got `int`."""
    text, _, where = error.partition(" - at `$")
    text = text[:1].lower() + text[1:]
    return f"{where.removesuffix('`').lstrip('.')}: {text}" if where else text


def _find_repeated(kind: str, config: Kubeconfig) -> Iterator[str]:
    names = [each.name for each in getattr(config, kind)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{kind}: the name {name!r} is used twice; rename or remove one"


def _find_unknown(value: Any, struct: type[Struct] | None, path: str = "") -> Iterator[str]:
    """Yield the paths of unknown fields."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _find_unknown(each, struct, f"{path}[{number}]")
    elif isinstance(value, dict) and struct:
        known = {each.encode_name: _struct_in(each.type) for each in msgspec.structs.fields(struct)}
        for name, each in value.items():
            where = f"{path}.{name}" if path else name
            if name not in known:
                yield where
            yield from _find_unknown(each, known.get(name), where)


def _struct_in(type_: Any) -> type[Struct] | None:
    """Return the Struct in a field's type, also in a list or an optional one."""
    found = (each for each in (type_, *get_args(type_)) if get_origin(each) is None and isinstance(each, type))
    return next((each for each in found if issubclass(each, Struct)), None)


def _resolve_paths(config: Kubeconfig, folder: Path) -> None:
    """Make paths absolute: they are relative to the file's folder. A command without a slash stays: $PATH has it."""
    for cluster in (each.cluster for each in config.clusters):
        cluster.certificate_authority = _absolute(cluster.certificate_authority, folder)
    for user in (each.user for each in config.users):
        user.client_certificate = _absolute(user.client_certificate, folder)
        user.client_key = _absolute(user.client_key, folder)
        user.token_file = _absolute(user.token_file, folder)
        if user.exec and os.sep in user.exec.command:
            user.exec.command = _absolute(user.exec.command, folder)


def _absolute(path: str, folder: Path) -> str:
    return str(folder / path) if path else ""
