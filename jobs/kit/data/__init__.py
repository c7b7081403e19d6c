"""ConfigMaps and Secrets: content, differences, and the bodies of writes. Pure."""
