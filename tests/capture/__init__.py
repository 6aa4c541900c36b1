"""How we listen, part by part."""
