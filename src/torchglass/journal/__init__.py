"""How it is written down: append-only streams of plain bytes, in memory or in a file that outlives the process.

Standard library only. What capture writes here is all that settling reads (docs/journal.md).
"""
