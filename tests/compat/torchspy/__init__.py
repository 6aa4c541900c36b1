"""Tests of torchspy's front door."""
