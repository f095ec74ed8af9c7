"""The outside world in memory: time, an API server, its cluster and its faults. It holds no decision of Headroom's."""
