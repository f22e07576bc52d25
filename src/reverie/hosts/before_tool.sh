#!/bin/sh
# Before a tool runs: start Reverie only if the call names a file or command that a memory names too.
# Usage: before_tool.sh HOME HOST PROGRAM...
names="${REVERIE_HOME:-$1}/queue/names$(printf %s "${CLAUDE_PROJECT_DIR:-$PWD}" | tr / -)"
host=$2
shift 2
[ -s "$names" ] || exit 0
call=$(cat)
printf %s "$call" | grep -qwFf "$names" || exit 0
printf %s "$call" | "$@" hook --host "$host" PreToolUse
exit 0
