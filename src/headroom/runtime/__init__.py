"""The loop and what a process needs around it."""
