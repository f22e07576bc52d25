"""Seven layers that change a conversation or its memories, one package each.

No layer imports another; a layer sees the effects of the others in the view.
"""
