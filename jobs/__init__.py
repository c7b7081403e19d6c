"""Scheduled chores for a Kubernetes cluster: one module per job, `kit` for what they share."""

__version__ = "0.1.0"
