"""Fixtures that the tests of disturbed runs share."""

from tests.sandbox.small_world import quick, small_world, undisturbed

__all__ = ["quick", "small_world", "undisturbed"]
