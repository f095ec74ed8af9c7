"""What the measurement of the extender needs beside it."""
