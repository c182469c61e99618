"""What a model hears, as vectors: sounds that are alike lie close together."""
