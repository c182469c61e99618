"""A study: how its file comes to be, and what its work folder holds, lacks and needs next."""
