"""Database migrations of the review tables: Alembic upgrades any older database to the newest version."""
