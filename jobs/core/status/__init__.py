"""The parts of chores status."""
