"""`swell config`: publish configurations, look at them, and see who has them.

Exit codes: 0 done; 1 an error; 2 a command that does not exist like that; 3 stored, but some
container has not reached what `--wait` asks for, or has rejected it; 130 after Ctrl-C.
"""

from __future__ import annotations

import typer

from swell.cli import config_changes, config_diff, config_editing, config_views, config_watching

app = typer.Typer(no_args_is_help=True)

app.command()(config_changes.put)
app.command()(config_views.get)
app.command(name="set")(config_changes.set_)
app.command()(config_changes.unset)
app.command()(config_editing.edit)
app.command(name="list")(config_views.list_)
app.command()(config_views.history)
app.command()(config_diff.diff)
app.command()(config_changes.rollback)
app.command()(config_watching.watch)
app.command()(config_changes.delete)
app.command()(config_views.status)
app.command()(config_views.options)
