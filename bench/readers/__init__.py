"""Programs that hold all pods of a cluster in memory, each run in a process of its own by bench.listwatch.

Each prints one JSON line when it holds the number of pods it was told to expect: what it cost so far. The peers run in an
environment of their own, so `cost` imports nothing but the standard library. `replay` plays an API server.
"""
