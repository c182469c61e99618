"""How the tables of a review came to be, step by step: Alembic brings any older database to the newest."""
