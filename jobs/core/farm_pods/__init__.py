"""The parts of farm-pods."""
