"""The manifests: what `kubectl apply -k cronjobs` installs, shipped with the commands that read the CRDs."""
