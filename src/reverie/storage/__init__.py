"""Where it rests: documents, append-only logs, leases and listing behind one small port.

``files.FileStorage`` keeps them in a directory, ``in_memory.InMemoryStorage`` in this process. Both pass
``reverie.testing.storage_conformance``, and so should yours.
"""
