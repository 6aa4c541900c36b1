"""Where the first bad value of a trace came from: the event that made it, not those that passed it on."""
