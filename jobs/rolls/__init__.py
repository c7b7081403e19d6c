"""The parts of roll-workloads: what pod templates refer to, what that holds, the baseline, why not now, verdicts."""
