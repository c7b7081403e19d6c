"""Read YAML files with limits, and validate custom resources in them."""
