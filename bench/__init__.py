"""Measurements of Headroom, one file each; `make bench` lists them, `make bench NAME=x` runs one."""
