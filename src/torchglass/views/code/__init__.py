"""Each step under the source lines that led to it."""
