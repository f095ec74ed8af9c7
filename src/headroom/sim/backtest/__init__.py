"""Back-test: a history of prices, ranked and switched by the production code of cheapest capacity, beside rules that know less or more.

`tables` reads files, `history` what they say, `timeline` asks `core/offers` for the market at each moment, `rules` move through it,
`hindsight` knows all that comes, and `report` says what each of them paid.
"""
