"""Tests of the first bad value."""
