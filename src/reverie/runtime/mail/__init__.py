"""Mailboxes: messages between agents in one process or in several."""
