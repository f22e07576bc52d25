"""Projects, processes and trusted directories: the ground the other packages stand on."""
