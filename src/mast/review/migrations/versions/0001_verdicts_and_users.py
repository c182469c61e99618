"""Create the tables of verdicts (append-only), users and sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ADD_ONLY = {
    "sqlite": (
        "CREATE TRIGGER verdicts_stay_{operation} BEFORE {operation} ON verdicts "
        "BEGIN SELECT RAISE(ABORT, 'verdicts are append-only'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION verdicts_stay() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'verdicts are append-only'; END $$",
        "CREATE TRIGGER verdicts_stay_{operation} BEFORE {operation} ON verdicts "
        "FOR EACH STATEMENT EXECUTE FUNCTION verdicts_stay()",
    ),
}


def upgrade() -> None:
    """Create the tables and the triggers that forbid changing verdicts."""
    op.create_table(
        "verdicts",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("event_id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("recording_id", sa.Text(), nullable=False),
        sa.Column("start_s", sa.Double(), nullable=False),
        sa.Column("end_s", sa.Double(), nullable=False),
        sa.Column("low_hz", sa.Double()),
        sa.Column("high_hz", sa.Double()),
        sa.Column("label", sa.Text()),
        sa.Column("score", sa.Double()),
        sa.Column("model", sa.Text()),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queue", sa.Text()),
        sa.Column("reverts", sa.Integer()),
        sa.Column("request_id", sa.String(64), nullable=False, unique=True),
        sa.UniqueConstraint("event_id", "version"),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("password", sa.Text()),
        sa.Column("removed", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("token", sa.String(64), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ends_utc", sa.DateTime(timezone=True), nullable=False),
    )
    for operation in ("UPDATE", "DELETE"):
        for statement in ADD_ONLY[op.get_bind().dialect.name]:
            op.execute(statement.format(operation=operation))
