"""What it means: pure functions from a trace to a view; one file a view."""
