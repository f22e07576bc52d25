"""The provider's request format: build it, check it, compare it."""
