"""The shift benchmark's methods, and what its cells come to: intervals, targets, tables and a picture."""
