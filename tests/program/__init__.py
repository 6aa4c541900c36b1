"""Tests of the program tree and of data flow: against programs that count what they do themselves."""
