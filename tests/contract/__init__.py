"""What the embedded API server and a real kube-apiserver must answer alike."""
