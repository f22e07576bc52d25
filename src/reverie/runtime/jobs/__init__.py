"""Background jobs on a database: needs the extra ``postgres``."""
