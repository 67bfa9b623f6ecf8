"""Kinds of documents about things: invoice, ticket, place, product."""

from random import Random

from nano_document import BOOLEAN, INTEGER, STRING, Kind, Record, array_schema, object_schema, yes_no
from nano_words import COLORS, invented_word, number, thing


def invent_invoice(rng: Random) -> Record:
    """One or two lines and their true total."""
    lines = [
        {"item": thing(rng), "quantity": number(rng, 2), "price": number(rng, 3)} for _ in range(rng.choice((1, 2)))
    ]
    return {
        "number": rng.randint(1000, 9999),
        "customer": f"{invented_word(rng)} {rng.choice(('Ltd', 'Inc', 'Group'))}",
        "lines": lines,
        "total": sum(line["quantity"] * line["price"] for line in lines),
        "currency": rng.choice(("EUR", "USD", "GBP")),
        "paid": rng.random() < 0.5,
    }


def speak_invoice(record: Record) -> dict[str, str]:
    """The lines as goods, and whether the money came."""
    goods = [f"{line['quantity']} x {line['item']} at {line['price']}" for line in record["lines"]]
    return {
        "goods": " and ".join(goods),
        "goods_list": "; ".join(goods),
        "state": "paid" if record["paid"] else "open",
        "paid_word": yes_no(record["paid"]),
    }


INVOICE = Kind(
    "invoice",
    object_schema(
        {
            "number": INTEGER,
            "customer": STRING,
            "lines": array_schema(object_schema({"item": STRING, "quantity": INTEGER, "price": INTEGER}), 2),
            "total": INTEGER | {"maximum": 999999},
            "currency": {"enum": ["EUR", "USD", "GBP"]},
            "paid": BOOLEAN,
        }
    ),
    invent_invoice,
    speak_invoice,
    (
        "Invoice {number} for {customer}.",
        "This is invoice {number} to {customer}.",
        "{customer} received invoice {number}.",
        "Invoice {number} goes to {customer}.",
    ),
    (
        ("We sent {goods}.", "The order was {goods}.", "Goods: {goods}.", "They bought {goods}."),
        (
            "The total is {total} {currency}.",
            "Total: {total} {currency}.",
            "In all {total} {currency}.",
            "That makes {total} {currency}.",
        ),
        ("The invoice is {state}.", "It is {state}.", "This one is {state}."),
    ),
    "Invoice {number}",
    ("Customer: {customer}", "Goods: {goods_list}", "Total: {total} {currency}", "Paid: {paid_word}"),
    (
        (("What is the number?", "Which invoice is it?"), "{number}"),
        (("Who is the customer?", "Who bought it?", "Who received invoice {number}?"), "{customer}"),
        (("What is the total?", "How much is it?", "What is the total of invoice {number}?"), "{total} {currency}"),
        (("Which currency?", "What is the currency?"), "{currency}"),
        (("Is it paid?", "Is invoice {number} paid?"), "{paid_word}"),
    ),
)


def invent_ticket(rng: Random) -> Record:
    """A complaint about a product."""
    return {
        "id": rng.randint(100, 99999),
        "user": invented_word(rng).lower(),
        "product": thing(rng),
        "priority": rng.choice(("low", "medium", "high", "urgent")),
        "open": rng.random() < 0.5,
    }


def speak_ticket(record: Record) -> dict[str, str]:
    """Whether it is still open."""
    return {"state": "open" if record["open"] else "closed", "open_word": yes_no(record["open"])}


TICKET = Kind(
    "ticket",
    object_schema(
        {
            "id": INTEGER,
            "user": STRING,
            "product": STRING,
            "priority": {"enum": ["low", "medium", "high", "urgent"]},
            "open": BOOLEAN,
        }
    ),
    invent_ticket,
    speak_ticket,
    (
        "Ticket {id} by {user}.",
        "User {user} wrote ticket {id}.",
        "Ticket {id} came from {user}.",
        "We have ticket {id} from the user {user}.",
    ),
    (
        (
            "The {product} does not work.",
            "The {product} is broken.",
            "There is a problem with the {product}.",
            "It is about the {product}.",
        ),
        ("The priority is {priority}.", "Priority: {priority}.", "We gave it {priority} priority."),
        ("The ticket is {state}.", "It is {state}.", "This one is {state}."),
    ),
    "Ticket {id}",
    ("User: {user}", "Product: {product}", "Priority: {priority}", "Open: {open_word}"),
    (
        (("What is the id?", "Which ticket is it?"), "{id}"),
        (("Who is the user?", "Who wrote it?", "Who wrote ticket {id}?"), "{user}"),
        (("Which product?", "What is broken?", "What is ticket {id} about?"), "{product}"),
        (("What is the priority?", "What is the priority of ticket {id}?"), "{priority}"),
        (("Is it open?", "Is ticket {id} open?"), "{open_word}"),
    ),
)


def invent_place(rng: Random) -> Record:
    """A settlement somewhere."""
    return {
        "name": invented_word(rng),
        "type": rng.choice(("town", "village", "port", "city")),
        "region": invented_word(rng),
        "river": invented_word(rng),
        "population": number(rng, 5, 3),
    }


PLACE = Kind(
    "place",
    object_schema(
        {
            "name": STRING,
            "type": {"enum": ["town", "village", "port", "city"]},
            "region": STRING,
            "river": STRING,
            "population": INTEGER,
        }
    ),
    invent_place,
    lambda record: {},
    (
        "{name} is a {type}.",
        "The {type} is called {name}.",
        "We visited {name}, a {type}.",
        "The {type} of {name} is old.",
    ),
    (
        (
            "The region is {region}.",
            "It lies in the region {region}.",
            "It is part of {region}.",
            "{region} is the region.",
        ),
        ("The river is the {river}.", "The river {river} runs by.", "It stands on the river {river}."),
        ("{population} people live there.", "The population is {population}.", "It has {population} people."),
    ),
    "Place: {name}",
    ("Type: {type}", "Region: {region}", "River: {river}", "Population: {population}"),
    (
        (("What is the name?", "What is it called?"), "{name}"),
        (("What type is it?", "What is {name}?"), "{type}"),
        (("Which region?", "In which region is {name}?"), "{region}"),
        (("Which river?", "What is the river?", "Which river runs by {name}?"), "{river}"),
        (
            ("How many people live there?", "What is the population?", "How many people live in {name}?"),
            "{population}",
        ),
    ),
)


def invent_product(rng: Random) -> Record:
    """An article of a catalogue."""
    return {
        "name": f"{invented_word(rng)} {number(rng, 3)}",
        "maker": invented_word(rng),
        "price": number(rng, 4),
        "colors": rng.sample(COLORS, rng.choice((1, 2, 3))),
        "stock": rng.random() < 0.5,
    }


def speak_product(record: Record) -> dict[str, str]:
    """The colours in a row, and whether it can be had."""
    *most, last = record["colors"]
    return {
        "palette": f"{', '.join(most)} and {last}" if most else last,
        "palette_list": ", ".join(record["colors"]),
        "state": "in stock" if record["stock"] else "sold out",
        "stock_word": yes_no(record["stock"]),
    }


PRODUCT = Kind(
    "product",
    object_schema(
        {"name": STRING, "maker": STRING, "price": INTEGER, "colors": array_schema(STRING, 3), "stock": BOOLEAN}
    ),
    invent_product,
    speak_product,
    (
        "The {name} is made by {maker}.",
        "{maker} makes the {name}.",
        "New from {maker}: the {name}.",
        "This is the {name} by {maker}.",
    ),
    (
        (
            "It costs {price} euros.",
            "The price is {price} euros.",
            "Price: {price} euros.",
            "You can buy it for {price} euros.",
        ),
        ("It comes in {palette}.", "Colors: {palette}.", "You can have it in {palette}.", "We have it in {palette}."),
        ("It is {state}.", "The product is {state}.", "The {name} is {state}."),
    ),
    "Product: {name}",
    ("Maker: {maker}", "Price: {price}", "Colors: {palette_list}", "Stock: {stock_word}"),
    (
        (("What is the name?", "Which product?"), "{name}"),
        (("Who makes it?", "Who is the maker?", "Who makes the {name}?"), "{maker}"),
        (("What does it cost?", "What is the price?", "How much is the {name}?"), "{price}"),
        (("Which colors?", "What are the colors?"), "{palette_list}"),
        (("Is it in stock?", "Is the {name} in stock?"), "{stock_word}"),
    ),
)
