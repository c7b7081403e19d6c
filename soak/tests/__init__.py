"""Tests of the soak itself: its invariants, with constructed histories."""
