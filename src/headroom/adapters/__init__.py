"""All that touches the outside."""
