"""Measures statistics of values in place, without torch functions, copies or waiting."""
