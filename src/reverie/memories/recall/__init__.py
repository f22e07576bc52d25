"""Choose memories for a prompt and render them safely."""
