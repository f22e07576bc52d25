#!/bin/sh
# Before a tool runs: start Reverie only if the call names a file or command that a memory names too.
# Usage: before_tool.sh HOME HOST PROGRAM...
home=${REVERIE_HOME:-$1} host=$2 project=$PWD
shift 2
[ "$host" != claude-code ] || project=${CLAUDE_PROJECT_DIR:-$PWD}
names="$home/queue/names$(printf %s "$project" | tr / -)"
[ -s "$names" ] || { cat >/dev/null; exit 0; }
call=$(cat)
printf %s "$call" | LC_ALL=C sed 's/^.*"tool_input"://' | grep -qwFf "$names" || exit 0
printf %s "$call" | "$@" hook --host "$host" PreToolUse
exit 0
