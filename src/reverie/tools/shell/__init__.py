"""Shell commands for tools: grammar, read-only check, sandbox, supervision."""
