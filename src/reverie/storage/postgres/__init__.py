"""Storage in PostgreSQL: needs the extra ``postgres``."""
