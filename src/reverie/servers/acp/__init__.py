"""The agent as a server of the Agent Client Protocol, for editors. Needs the extra ``reverie[acp]``."""
