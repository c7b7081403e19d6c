"""The files of a mirror's cache, next to its registry."""
