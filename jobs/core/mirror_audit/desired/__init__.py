"""The desired resources of a mirror. Pure."""
