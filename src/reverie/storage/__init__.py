"""Storage of documents, append-only logs and leases behind the ``Storage`` protocol.

``files.FileStorage`` stores them in a directory, ``in_memory.InMemoryStorage`` in this process. Both pass
``reverie.testing.storage_conformance``, and so should your own implementation.
"""
