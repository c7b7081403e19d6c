"""Checks of this repository: docs, manifests as kustomize builds them, chart, workflows, and the suite itself."""
