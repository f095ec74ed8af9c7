"""What if: recorded work played again under two policies, decided by the production plans on a clock that jumps.

`recorded` and `traces` read what people asked for, `policy` and `beside` what applies to it; `replay` plays it over a `Cluster`, `outcome` measures
what came of it, `comparing` and `page` put two outcomes side by side.
"""
