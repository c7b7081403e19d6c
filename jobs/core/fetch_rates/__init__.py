"""The parts of fetch-rates."""
