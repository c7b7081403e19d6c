"""The parts of mirror-audit."""
