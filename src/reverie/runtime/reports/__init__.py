"""Figures over all sessions: costs, measures, memory pollution."""
