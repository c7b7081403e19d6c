"""Measure the cost of a sweep, compared with minimal clients: `make benchmark`, docs/performance.md."""
