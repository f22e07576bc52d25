"""Layer 6, dream: a day and five sessions later, memories are merged, corrected and pruned.

It works on a copy and proposes a list of changes, which is checked and applied as one transaction that can be undone.
It does nothing to any prompt: what it changes is seen by sessions that open later.
"""
