"""``reverie completion``: print the script that completes commands, options and sessions in a shell."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from ...errors import InputError
from ..main import COMPLETES

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def command(shell: str | None) -> None:
    """Print the script that completes commands, options and the names of sessions; default: the script of $SHELL.

    \b
    bash   echo 'eval "$(reverie completion bash)"' >> ~/.bashrc
    zsh    echo 'eval "$(reverie completion zsh)"' >> ~/.zshrc
    fish   echo 'reverie completion fish | source' >> ~/.config/fish/config.fish
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    found = get_completion_class(name) if name in SHELLS else None
    if found is None:
        raise InputError(f"name a shell: reverie completion {'|'.join(SHELLS)}")
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "reverie", COMPLETES).source())
