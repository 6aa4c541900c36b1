"""From a journal to the tables of a trace: a pure function, without torch, a living object or a thread."""
