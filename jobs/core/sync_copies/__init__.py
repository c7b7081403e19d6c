"""The parts of sync-copies: rules, desired copies, evaluation of each copy, mistakes in rules, status of rules."""
