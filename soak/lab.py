"""What all parts of a soak share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from soak.history import History
from soak.journal import Journal
from soak.observed import Invariant
from tests.apis import Api
from tests.node.kubectl import Kubectl
from tests.one_node import Node


@dataclass
class Lab:
    """A cluster with one node and all jobs.

    `api` sends requests as the administrator: `ApiError` if the API server refuses one, `OSError` or
    `http.client.HTTPException` if it does not respond. Several threads may use it. `folder` is a temporary folder.
    `image` is that of the CronJobs. `jobs` are the CronJobs that run, the others are suspended.
    `manifests` are the folders of kustomizations with which all was installed.
    """

    seed: int
    node: Node
    api: Api
    kubectl: Kubectl
    journal: Journal
    history: History
    folder: Path
    image: str
    jobs: Sequence[str]
    manifests: Sequence[Path]

    def random(self, name: str) -> random.Random:
        """Return the random numbers of one part, which are the same for each soak of the seed."""
        return random.Random(f"{self.seed} {name}")


Action = Callable[[], object]


class Part(Protocol):
    """What tenants do with one job, and the invariants that this job must not violate.

    The constructor takes a Lab and creates what the part needs. Actions are called one at a time, in an order that
    follows from the seed. An action may raise ApiError or OSError: it is then recorded as failed.
    """

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""

    def resolve(self) -> None:
        """Do what an administrator does about the reports, so that each job can reach its desired state.

        It is called after the faults ended, and again while it changes something: it raises nothing, and is idempotent.
        """

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of this part."""

    def end(self) -> None:
        """End what runs outside of the cluster. No action may follow."""
