"""What is done to a conversation: seven rooms, cheapest first, so that each spares the next from acting.

l1_offload, l2_trim, l3_notes, l4_compact, l5_extract, l6_dream, l7_relay. None opens onto another: a layer learns what
the others did from the view. In each room ``plan`` is pure and ``apply`` alone touches a port; both end in decisions.
"""
