"""What a sweep costs, against clients that do the least that can be done: `make benchmark`, docs/performance.md."""
