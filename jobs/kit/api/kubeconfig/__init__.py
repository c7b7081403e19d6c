"""Connect with a kubeconfig: choose a context, find its server and the credentials of its user."""
