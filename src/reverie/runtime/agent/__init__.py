"""An agent: a model, tools, permissions and a session in one query loop."""
