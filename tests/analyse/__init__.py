"""What a trace means, view by view."""
