"""The parts of sync-copies: its rules, what should be where, what is to be said of each place, the rules' status."""
