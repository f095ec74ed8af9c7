"""What machines cost: the price book that an administrator writes, and what clouds ask, as one set of offers for everybody."""

from headroom.adapters.prices.book import CAPACITY_TYPES, LARGEST, Book, of_config_map, parse_book
from headroom.adapters.prices.united import confirmed, is_near, united

__all__ = ["CAPACITY_TYPES", "LARGEST", "Book", "confirmed", "is_near", "of_config_map", "parse_book", "united"]
