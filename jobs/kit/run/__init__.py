"""A run of a job: options, phases, brakes, writes, report."""
