"""What `make bench NAME=spotpools` is made of: the scenario search, the cost of deciding, and zones of a recorded trace."""
