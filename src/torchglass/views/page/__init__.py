"""The page: code, steps, data flow and tensors of a trace in one HTML file."""
