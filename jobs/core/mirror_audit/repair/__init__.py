"""The next step of a repair for each finding. Pure."""
