"""Tests of how a journal becomes tables."""
