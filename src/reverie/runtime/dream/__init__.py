"""Layer 6: consolidate memories in a process of its own."""
