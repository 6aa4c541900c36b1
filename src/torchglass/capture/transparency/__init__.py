"""What torch or Python would otherwise do differently because we listen, put right."""
