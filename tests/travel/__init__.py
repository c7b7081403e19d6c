"""Time travel on real API servers: `make test-travel`."""
