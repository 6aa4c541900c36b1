"""What a trace means and how it looks: one folder a view."""
