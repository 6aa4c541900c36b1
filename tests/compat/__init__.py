"""Tests of the other tools' front doors."""
