"""The parts of farm-pods: what a FarmPod is, what was seen, what is to be said of each pod, and the brake."""
