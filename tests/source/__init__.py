"""Tests of reading the source."""
