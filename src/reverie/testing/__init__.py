"""Tools for testing agents: provider servers on loopback, a storage conformance suite; import each by name."""
