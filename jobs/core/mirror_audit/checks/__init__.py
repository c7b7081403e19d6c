"""Compare the resources of a mirror with the desired ones, and check its responses. Pure."""
