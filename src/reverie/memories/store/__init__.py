"""Memory files, their front matter, index and journal."""
