"""Verdicts that are only ever added; people, and where they are signed in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ADD_ONLY = {
    "sqlite": (
        "CREATE TRIGGER verdicts_stay_{verb} BEFORE {verb} ON verdicts "
        "BEGIN SELECT RAISE(ABORT, 'verdicts are only ever added'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION verdicts_stay() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'verdicts are only ever added'; END $$",
        "CREATE TRIGGER verdicts_stay_{verb} BEFORE {verb} ON verdicts "
        "FOR EACH STATEMENT EXECUTE FUNCTION verdicts_stay()",
    ),
}


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "verdicts",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("subject", sa.String(64), nullable=False),
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
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at_utc", sa.DateTime(timezone=True), nullable=False),
        sa.Column("queue", sa.Text()),
        sa.Column("undoes", sa.Integer()),
        sa.Column("request_id", sa.String(64), nullable=False, unique=True),
        sa.UniqueConstraint("subject", "version"),
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
    for verb in ("UPDATE", "DELETE"):
        for statement in ADD_ONLY[op.get_bind().dialect.name]:
            op.execute(statement.format(verb=verb))
