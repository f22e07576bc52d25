# Bash reads this before a line that it computes (BASH_ENV): commands that run text as code are switched off, so that a
# value that became code by a mistake of ours still runs nothing from a file.
unset BASH_ENV
enable -n . source eval exec alias bind builtin caller compgen complete compopt declare dirs export fc getopts hash
enable -n help history jobs let local logout popd pushd readonly return shift suspend trap typeset ulimit umask unalias unset
enable -n bg disown fg kill times wait enable
