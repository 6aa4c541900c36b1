"""PyTorch's own operator and module samples, run plainly and under recording."""
