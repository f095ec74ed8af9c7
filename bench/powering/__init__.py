"""What `make bench NAME=power` is made of: recorded demand, the policies that it is played under, and what came of them."""
