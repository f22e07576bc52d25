"""What bytes cost: prefixes, breakpoints, prices, and the rules of a provider's prompt cache."""
