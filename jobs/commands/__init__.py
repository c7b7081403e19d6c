"""Commands that are not jobs."""
