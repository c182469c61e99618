"""The shift benchmark: its methods, its command, and the intervals, targets, tables and figure of its results."""
