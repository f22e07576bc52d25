"""What runs it: sessions, the library they stand in, the projects they belong to."""
