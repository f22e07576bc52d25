"""Commands about sessions in the library."""
