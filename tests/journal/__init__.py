"""Tests of how what is recorded is written down."""
