"""install-crds: the CustomResourceDefinitions, registered through the API instead of `kubectl apply -k cronjobs/crds`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import click
import msgspec
import yaml
from msgspec import Raw, Struct

from jobs.kit import options
from jobs.kit.cluster import Cluster
from jobs.kit.connect import Connection
from jobs.kit.model import Action, Finding, Fix, Need, ObjectKey, Plan, Severity
from jobs.kit.objects import Metadata, Resource
from jobs.kit.runner import Document, Job, run
