"""An in-memory Kubernetes API server for demos, fast tests and faults; imports nothing from `jobs`."""
