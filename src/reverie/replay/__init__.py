"""How you prove it: recorded sessions through policies, under a simulator of the provider's cache."""
