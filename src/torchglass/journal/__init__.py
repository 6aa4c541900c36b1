"""The raw record of what happened: append-only streams of bytes, in memory or in a file that survives the process.

Capture writes them, and settling reads nothing else (docs/journal.md). This package uses only the standard library.
"""
