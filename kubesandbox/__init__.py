"""An in-memory Kubernetes API server for demos, fast tests and faults; imports nothing from `jobs`."""

from .faults import Fault
from .sandbox import Sandbox
from .server import Request

__all__ = ["Fault", "Request", "Sandbox"]
