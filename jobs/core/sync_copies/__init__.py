"""The parts of sync-copies."""
