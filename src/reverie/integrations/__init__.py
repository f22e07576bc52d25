"""Integrations with existing agent loops: one module per framework, each behind its own extra, all on
``host_session``.
"""
