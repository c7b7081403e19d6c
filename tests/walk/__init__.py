"""A walk over all fields of the custom resources: every mutation of each, what it changes, and the way back."""
