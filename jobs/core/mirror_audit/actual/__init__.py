"""The resources of mirrors as they are in the cluster: decoding, rollout, endpoints and Events. Pure."""
