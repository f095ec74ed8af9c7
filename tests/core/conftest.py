"""Fixtures of the tests of the core."""

from tests.sentences import says

__all__ = ["says"]
