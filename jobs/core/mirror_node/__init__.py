"""The files of mirrors on a node, for the runtime there."""
