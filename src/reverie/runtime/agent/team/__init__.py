"""Layer 7: start other agents, fork, and follow their progress."""
