"""The names of a mirror's resources, their labels and ports, and its images. Pure."""

from __future__ import annotations

import re

from jobs import __version__

NAME = "mirror-audit"
# DaemonSets mount a folder of the node. The namespace of the registries does not allow such mounts.
NODE_NAMESPACE = "kube-chores-nodes"
REGISTRY_IMAGE = "docker.io/library/registry:3"
NODE_IMAGE = f"kube-chores:{__version__}"
PRIORITY_CLASS = "kube-chores-mirrors"
MIRROR = "kubechores.dev/mirror"
COMPONENT = "app.kubernetes.io/component"
PORT = 5000
PORT_NAME = "registry"
CACHE_PORT = 5001
CACHE_PORT_NAME = "cache"
# Each pod of a StatefulSet has the label value NAME-HASH, with a hash of ten characters. A label value has at most 63.
# https://github.com/kubernetes/kubernetes/issues/64023
MOST_CHARACTERS = 52
PREFIX, HEADLESS = "registry-mirror-", "-headless"
_PINNED = re.compile(r"[^@]*(:(?!latest$)[^:/@]+|@[^@]+)")


def name_problem(name: str) -> str:
    """Return why a mirror of this name cannot have resources, or an empty string."""
    if "." in name:
        return "contains dots, which are not valid in the name of a Service"
    if name.endswith(HEADLESS):
        return f"ends in {HEADLESS}, like the name of the second Service of another mirror"
    longest = MOST_CHARACTERS - len(PREFIX)
    if len(name) > longest:
        return f"has {len(name)} characters; at most {longest} fit in the names of its pods"
    return ""


def registry_of(image: str) -> str:
    """Return the host from which nodes pull an image: the first part of its name, or docker.io.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    host, slash, _ = image.partition("/")
    return host if slash and (host == "localhost" or set(host) & {".", ":"}) else "docker.io"


def is_pinned(image: str) -> bool:
    """Return whether an image has a digest, or a tag other than `latest`."""
    return _PINNED.fullmatch(image) is not None
