"""File access for tools: paths, globs, ignore rules, text, edits."""
