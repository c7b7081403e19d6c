"""Requests to which the embedded API server and a real kube-apiserver must give the same answer."""
