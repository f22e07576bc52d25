"""Run ``reverie`` as ``python -m reverie``."""

from .cli.start import main

main()
