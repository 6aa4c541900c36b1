"""The four tools' front doors: their vocabulary on our engine."""
