"""What is kept across sessions: memories as files of front matter and text."""
