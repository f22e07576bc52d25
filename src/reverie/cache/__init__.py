"""The cost of cached bytes: prefixes, breakpoints, prices, and the rules of a provider's prompt cache."""
