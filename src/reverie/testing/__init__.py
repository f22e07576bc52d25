"""For tests, yours and ours: conformance suites, a Messages API server, prefix assertions; import each by name."""
