"""How well predicted boxes agree with those of experts, and how sure one can be of it."""
