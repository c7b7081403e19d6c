"""Bare clients: each sends the minimum of requests for the result of a job, and does nothing else."""
