"""The shared words, pure: facts, world, actions, decisions."""
