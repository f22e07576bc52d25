"""Tools for testing agents: provider servers on loopback, a storage conformance suite, a demo session; import each by
name.
"""
