"""The hot path: the code that records each event, while the program waits."""
