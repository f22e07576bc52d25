"""``reverie db``: create the tables of a PostgreSQL database, or show their state."""

from __future__ import annotations

from types import ModuleType

import click

from ...errors import InputError, SettingsError
from ...extras import install_command
from ...settings import load_settings
from ..output import counted, emit_json, say, warn

_DATABASE = click.option("--database", "url", metavar="URL", help="The database; else the setting 'database'.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """Create the tables of a PostgreSQL database, or show their state.

    Sessions are stored there if the settings 'database' and 'tenant' are set.
    """


@command.command()
@_DATABASE
@click.option("--grant", metavar="ROLE", default="", help="Let this role read and write the tables.")
@click.option("--dry-run", is_flag=True, help="Show the pending migrations and change nothing.")
@_JSON
def migrate(url: str | None, grant: str, dry_run: bool, as_json: bool) -> int:
    """Create missing tables; safe to run at any time, from any number of machines.

    Run it as the owner of the tables. Programs should use another role, given with --grant: it can neither change the
    tables nor see rows of another tenant.
    """
    where = _url(url)
    made = _migrations().migrate(where, dry_run=dry_run, grant=grant)
    if as_json:
        emit_json({"dry_run": dry_run, "database": made.database, "applied": made.pending, "granted": grant})
        return 0
    verb = "would be applied" if dry_run else "applied"
    say(f"{made.database}: {counted(len(made.pending), 'migration')} {verb}")
    for name in made.pending:
        say(f"  {name}")
    if grant:
        say(f"{grant} {'could' if dry_run else 'can'} read and write the tables of its tenant")
    return 0


@command.command("status")
@_DATABASE
@_JSON
def show_status(url: str | None, as_json: bool) -> int:
    """Show the migrations of a database and whether its role is bound to a tenant."""
    found = _migrations().status(_url(url))
    if as_json:
        emit_json(found)
        return 1 if found.pending else 0
    say(f"{found.database}, {found.server}, as {found.role}")
    say(f"{counted(len(found.applied), 'migration')} applied, {len(found.pending)} pending")
    for name in found.pending:
        say(f"  {name}: run 'reverie db migrate'")
    if found.bypasses_tenants:
        warn(f"the role {found.role} is not bound by row-level security; use a role without SUPERUSER and BYPASSRLS")
    return 1 if found.pending else 0


def _url(given: str | None) -> str:
    url = given or load_settings().database
    if url is None:
        raise InputError("no database: give --database URL, or set REVERIE_DATABASE")
    return url


def _migrations() -> ModuleType:
    try:
        from ...storage.postgres import migrate
    except ImportError as error:
        raise SettingsError(f"a database needs the extra postgres: {install_command('postgres')}") from error
    return migrate
