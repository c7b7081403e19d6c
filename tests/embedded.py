"""Templates of the embedded cluster: each is made once a process, and tests begin with copies of it."""

import tempfile
from functools import cache
from pathlib import Path

from kubesandbox import Sandbox
from tests.apis import sandbox_api
from tests.manifests import everything


@cache
def empty() -> Sandbox:
    """A new cluster; never served itself, but copied with `Sandbox(of=...)`."""
    return Sandbox()


@cache
def installed() -> Sandbox:
    """A cluster with all manifests of cronjobs/; never served itself, but copied with `Sandbox(of=...)`."""
    with tempfile.TemporaryDirectory() as folder, Sandbox(of=empty()) as sandbox:
        api = sandbox_api(sandbox, Path(folder))
        for obj in everything():
            api.put(obj)
        return Sandbox(of=sandbox)
