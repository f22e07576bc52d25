"""Everything that runs: sessions, agents, memories, dreams, mail, and the library of sessions."""
