"""Weeks of operation in an hour: all jobs on a real node, next to tenants and faults, while invariants are checked."""
