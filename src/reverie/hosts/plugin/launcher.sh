#!/bin/sh
# Start the installation of Reverie that built this plugin, else the one on PATH. Without any, hooks do nothing.
[ ! -x @PROGRAM@ ] || exec @WORDS@ "$@"
command -v reverie >/dev/null && exec reverie "$@"
[ "$1" = hook ] && { cat >/dev/null; exit 0; }
echo "reverie is not on PATH: uv tool install 'reverie[mcp]' or pipx install 'reverie[mcp]'" >&2
exit 127
