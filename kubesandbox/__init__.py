"""An in-memory Kubernetes API server for demos, fast tests and faults; imports nothing from `jobs`."""

from .http.faults import Fault
from .http.server import Request
from .sandbox import Sandbox

__all__ = ["Fault", "Request", "Sandbox"]
