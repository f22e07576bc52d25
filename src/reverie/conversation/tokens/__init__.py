"""Token counts: estimates, corrections, accounting, the window and its thresholds."""
