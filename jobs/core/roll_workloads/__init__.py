"""The parts of roll-workloads."""
