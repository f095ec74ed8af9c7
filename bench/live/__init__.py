"""What the benchmarks on a real API server share: requests, the operator as a process, and the truth about pods."""
