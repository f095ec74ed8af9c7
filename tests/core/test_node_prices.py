"""What a node costs is remembered only as long as it holds."""

from __future__ import annotations

from msgspec import structs

from headroom.core.usage.keeping import NodePrices, PricingContext
from headroom.core.usage.prices import node_price
from headroom.model.cloud_facts import Offer
from headroom.model.facts import Price
from headroom.model.tables import NodeTable
from tests.builders import a_node, no_devices

DOLLAR = 1_000_000
KIND = (("node.kubernetes.io/instance-type", "g"),)


def around(nodes: NodeTable, price: int = 0, offers: dict[str, Offer] | None = None) -> PricingContext:
    book = (Price(instance_type="g", price_per_hour=price),) if price else ()
    return PricingContext(nodes, no_devices(), book, offers or {}, {}, ())


def an_offer(price: int) -> Offer:
    return Offer(name="o", instance_type="g", price_per_hour=price)


def test_nodes_that_are_gone_are_forgotten() -> None:
    nodes, known = NodeTable(), NodePrices()
    for number in range(300):
        node = a_node(f"n{number}", labels=KIND)
        nodes.put(node)
        assert known.of(node, around(nodes, DOLLAR)) == DOLLAR
        nodes.remove(f"n{number - 2}")
        assert len(known) <= 3


def test_another_book_or_another_offer_counts_at_once() -> None:
    nodes, known = NodeTable(), NodePrices()
    node = a_node("n", labels=KIND)
    nodes.put(node)
    assert known.of(node, around(nodes, DOLLAR)) == DOLLAR
    assert known.of(node, around(nodes, 2 * DOLLAR)) == 2 * DOLLAR
    # One after the other in the same place in memory, as a mapping that is made anew for every look may be.
    for price in (3, 4, 5, 6):
        assert known.of(node, around(nodes, offers={"o": an_offer(price * DOLLAR)})) == price * DOLLAR
    live = {"o": an_offer(7 * DOLLAR)}
    beside = around(nodes, offers=live)
    assert known.of(node, beside) == 7 * DOLLAR
    live["o"] = an_offer(8 * DOLLAR)
    assert known.of(node, around(nodes, offers=live)) == 8 * DOLLAR


def test_a_node_of_another_type_under_the_same_name_costs_what_it_costs() -> None:
    nodes, known = NodeTable(), NodePrices()
    first = a_node("n", labels=KIND)
    nodes.put(first)
    assert known.of(first, around(nodes, DOLLAR)) == DOLLAR
    other = structs.replace(first, labels=(("node.kubernetes.io/instance-type", "h"),))
    nodes.put(other)
    assert known.of(other, around(nodes, DOLLAR)) is None


def test_the_newest_offer_counts_not_the_cheapest() -> None:
    node = a_node("n", labels=(*KIND, ("headroom.dev/capacity-type", "spot")))
    old = Offer(name="old", instance_type="g", capacity_type="spot", price_per_hour=DOLLAR, at=1000)
    new = structs.replace(old, name="new", price_per_hour=3 * DOLLAR, at=2000)
    undated = structs.replace(old, name="undated", price_per_hour=2 * DOLLAR, at=None)
    for offers in ((old, new, undated), (undated, new, old)):
        assert node_price(node, (), {each.name: each for each in offers}) == 3 * DOLLAR
    assert node_price(node, (), {"a": new, "b": structs.replace(new, price_per_hour=2 * DOLLAR)}) == 2 * DOLLAR


def test_a_service_behind_a_webhook_prices_nobodys_nodes() -> None:
    """Whoever may write a Spotpool chooses who answers, and would else choose what budgets cost."""
    node = a_node("n", labels=(*KIND, ("karpenter.sh/capacity-type", "spot")))
    lie = Offer(
        name="lie", provider="webhook", instance_type="g", price_per_hour=1, at=2000, endpoint="https://evil.example"
    )
    true = Offer(name="true", provider="aws", instance_type="g", price_per_hour=DOLLAR, at=1000)
    assert node_price(node, (), {"lie": lie, "true": true}) == DOLLAR
    assert node_price(node, (), {"lie": lie}) is None


def test_a_node_is_priced_among_the_offers_of_its_own_type() -> None:
    nodes, known = NodeTable(), NodePrices()
    node = a_node("n", labels=(*KIND, ("headroom.dev/capacity-type", "spot")))
    nodes.put(node)
    offers = {
        f"{kind}-{at}": Offer(name="x", instance_type=kind, price_per_hour=at * DOLLAR, at=at)
        for kind in "fgh"
        for at in (1, 2)
    }
    assert known.of(node, around(nodes, offers=offers)) == 2 * DOLLAR
    others = {name: each for name, each in offers.items() if each.instance_type != "g"}
    assert known.of(node, around(nodes, offers=others)) is None
