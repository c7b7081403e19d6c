"""The parts of roll-workloads: opt-in, workloads, references, sources, key, baseline and evaluation."""
