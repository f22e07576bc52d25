"""Commands about compaction and notes."""
