"""What a trace means: each answer is a list of findings, which share one shape, one text and one JSON form."""
