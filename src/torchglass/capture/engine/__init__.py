"""The hot path: what is written down for each event, while the program waits."""
