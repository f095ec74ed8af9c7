"""The public promise: one file per kind; everything the API server, the CLI and the loop know of it comes from here."""
