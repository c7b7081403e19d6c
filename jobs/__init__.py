"""Scheduled chores for a Kubernetes cluster: a module for each job, its parts in `core`, what jobs share in `kit`."""

__version__ = "0.1.0"
