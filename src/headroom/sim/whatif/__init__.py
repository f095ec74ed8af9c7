"""What-if: replays recorded work under two policies, with the production plans and a clock that jumps.

`recorded` and `traces` read the work, `policy` and `beside` the policies; `replay` runs it on a `ReplayCluster`, `outcome` measures the result, and
`comparing`, `report` and `page` put two outcomes side by side.
"""
