"""How we listen: the only package, with compat, that imports torch."""
