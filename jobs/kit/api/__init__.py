"""Access to the API server: credentials, requests, objects and custom resources."""
