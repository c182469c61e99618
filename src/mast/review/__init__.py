"""People check what the machine proposes: what to show next, their verdicts, and the page they work in."""
