"""How a trace ended that an exception left."""
