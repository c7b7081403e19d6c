"""The parts of farm-pods: the FarmPod, what a run observed, evaluation of each pod, and the object brake."""
