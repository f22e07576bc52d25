"""``reverie gateway record``: the recorder's process, which the gateway starts."""

from __future__ import annotations

import click


@click.command(hidden=True)
def record() -> None:
    """Record the exchanges that a gateway writes to stdin."""
    import os
    import sys

    from ...servers.gateway.exchange import read_exchanges
    from ...servers.gateway.recorder import Recorder
    from ...settings import load_settings
    from ..output import warn

    os.nice(5)
    with Recorder(load_settings(), warn) as recorder:
        for exchange in read_exchanges(sys.stdin.buffer):
            recorder.take(exchange)
