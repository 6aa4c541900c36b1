"""The order of module calls."""
