"""Permissions and hooks: the checks before an agent acts."""
