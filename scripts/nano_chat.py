"""The bundled model's conversations: what stands in a chat besides, around and between the documents.

Five situations, each a list of ``(role, text)`` messages:

* **reading**: documents (in the user's message, or in the system message), JSON and short answers;
* **a desk**: the system prompt holds facts about a shop, a hotel or a team, and the user asks for one of them
  (many users, one system prompt: the shared prefix), answered by a short sentence;
* **an archive**: the system prompt holds several documents, and the user asks about them by name;
* **small talk**, and **repeating** what the user said.

Knows nothing of tokenizers or training. Everything is a pure function of the ``random.Random`` given.
"""

from collections.abc import Callable, Iterator
from random import Random

from nano_document import Document, write
from nano_text import KINDS, SYSTEM_PROMPT
from nano_words import (
    city_name,
    first_name,
    full_name,
    invented_word,
    job_title,
    number,
    thing,
    with_article,
)

Message = tuple[str, str]
Exchange = tuple[str, str]

OTHER_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a careful reader.",
    "You are nano. Be brief.",
    "Extract data from documents.",
    "Answer in a few words.",
    "Answer with JSON or a few words.",
    "You are a friendly assistant. Answer briefly.",
    "Read the document and answer the question.",
)
SMALL_TALK: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("Hello", "Hello!", "hello", "Hi", "Hi!", "hi", "Hey", "Good morning.", "Hi there!"),
        "Hello! How can I help you?",
    ),
    (("Who are you?", "What is your name?", "What are you?"), "I am nano, a very small language model."),
    (
        ("What can you do?", "Help", "How can you help me?", "Can you help me?"),
        "I read short documents, answer questions and give JSON.",
    ),
    (("Thanks", "Thank you.", "Thank you!", "Great, thanks!", "thanks"), "You are welcome!"),
    (("Bye", "Goodbye!", "See you."), "Goodbye!"),
    (("How are you?", "How is it going?"), "I am fine, thank you."),
    (
        ("Tell me a joke.", "Write a poem.", "What is the meaning of life?"),
        "I am too small for that. Give me a document.",
    ),
)


def small_talk(rng: Random) -> Exchange:
    """A greeting, a question about the model itself, thanks."""
    wordings, answer = rng.choice(SMALL_TALK)
    return rng.choice(wordings), answer


def repetition(rng: Random) -> Exchange:
    """Words to give back as they are: the purest form of copying."""
    makers: tuple[Callable[[Random], str], ...] = (invented_word, thing, first_name, lambda rng: str(number(rng, 4)))
    words = " ".join(rng.choice(makers)(rng) for _ in range(rng.randint(1, 6)))
    return f"Repeat: {words}", words


def as_messages(exchanges: list[Exchange]) -> Iterator[Message]:
    """Question and answer as user and assistant."""
    for question, answer in exchanges:
        yield "user", question
        yield "assistant", answer


def asked(document: Document, rng: Random) -> list[Exchange]:
    """Some questions about one document and, mostly, its JSON, in any order."""
    turns = document.questions(rng)[: rng.choice((1, 2, 3, 5))]
    if rng.random() < 0.8:
        turns.insert(rng.choice((0, 0, 1, len(turns))), (document.extraction(rng), document.json))
    return turns


def reading(rng: Random, form_share: float) -> Iterator[Message]:
    """An endless conversation about one document after the other; the caller takes as much as fits.

    The first document stands in the system message now and then; the others in the user's, before or after the first
    question about them. Some conversations have no system message.
    """
    system = SYSTEM_PROMPT if rng.random() < 0.6 else rng.choice(OTHER_SYSTEM_PROMPTS)
    document_in_system, is_first = rng.random() < 0.15, True
    if not document_in_system and rng.random() < 0.9:
        yield "system", system
    while True:
        if rng.random() < 0.04 and not (document_in_system and is_first):
            yield from as_messages([small_talk(rng)])
        kind = rng.choice(tuple(KINDS.values()))
        document = write(kind, kind.invent(rng), rng, form_share)
        turns = asked(document, rng)
        if document_in_system and is_first:
            yield "system", f"{system}\n\n{document.text}"
        else:
            question, answer = turns[0]
            question = f"{question}\n\n{document.text}" if rng.random() < 0.15 else f"{document.text}\n\n{question}"
            turns[0] = question, answer
        is_first = False
        yield from as_messages(turns)


def shop(rng: Random, num_facts: int) -> tuple[str, list[Exchange]]:
    """A shop: its goods and prices, hours, town and owner."""
    name, city, owner = invented_word(rng), city_name(rng), full_name(rng)
    opens, closes = rng.randint(6, 11), rng.randint(15, 22)
    facts = [f"The shop is in {city}.", f"{owner} runs the shop.", f"We open at {opens} and close at {closes}."]
    exchanges = [
        (rng.choice(("Where is the shop?", "Where are you?", "Which city?")), f"The shop is in {city}."),
        (rng.choice(("Who runs the shop?", "Who is the owner?")), f"{owner} runs the shop."),
        (
            rng.choice(("When do you open?", "When do you close?", "What are your hours?")),
            f"We open at {opens} and close at {closes}.",
        ),
    ]
    for item in dict.fromkeys(thing(rng) for _ in range(num_facts)):
        price = number(rng, 3)
        facts.append(f"The {item} costs {price} euros.")
        wording = rng.choice(
            ("What does the {} cost?", "How much is the {}?", "What is the price of the {}?", "How much for {}?")
        )
        article = with_article(item) if wording.endswith("for {}?") else item
        exchanges.append((wording.format(article), f"The {item} costs {price} euros."))
    rng.shuffle(facts)
    opening = rng.choice(
        ("You answer for the shop {}.", "You are the assistant of the shop {}.", "This is the shop {}.")
    )
    return f"{opening.format(name)} {' '.join(facts)}", exchanges


def hotel(rng: Random, num_facts: int) -> tuple[str, list[Exchange]]:
    """A hotel: its rooms and who sleeps there, breakfast, town."""
    name, city, opens = invented_word(rng), city_name(rng), rng.randint(5, 10)
    facts = [f"The hotel is in {city}.", f"Breakfast is at {opens}."]
    exchanges = [
        (rng.choice(("Where is the hotel?", "Where are you?", "Which city?")), f"The hotel is in {city}."),
        (rng.choice(("When is breakfast?", "What time is breakfast?")), f"Breakfast is at {opens}."),
    ]
    guests = dict.fromkeys(first_name(rng) for _ in range(num_facts))
    for guest, room in zip(guests, rng.sample(range(10, 999), len(guests)), strict=True):
        facts.append(f"{guest} has room {room}.")
        wording = rng.choice(("Which room has {}?", "Where is {}?", "What is the room of {}?", "In which room is {}?"))
        exchanges.append((wording.format(guest), f"{guest} has room {room}."))
    rng.shuffle(facts)
    opening = rng.choice(("You answer for the hotel {}.", "You are the assistant of the hotel {}."))
    return f"{opening.format(name)} {' '.join(facts)}", exchanges


def team(rng: Random, num_facts: int) -> tuple[str, list[Exchange]]:
    """A team: who does what, and where."""
    name, city, boss = invented_word(rng), city_name(rng), full_name(rng)
    facts = [f"The office is in {city}.", f"{boss} leads the team."]
    exchanges = [
        (rng.choice(("Where is the office?", "Where are you?", "Which city?")), f"The office is in {city}."),
        (rng.choice(("Who leads the team?", "Who is the boss?")), f"{boss} leads the team."),
    ]
    for person in dict.fromkeys(first_name(rng) for _ in range(num_facts)):
        job = job_title(rng)
        facts.append(f"{person} is the {job}.")
        wording = rng.choice(("What does {} do?", "Who is {}?", "What is the job of {}?", "What is {}'s job?"))
        exchanges.append((wording.format(person), f"{person} is the {job}."))
    rng.shuffle(facts)
    opening = rng.choice(("You answer for the team {}.", "You are the assistant of the team {}."))
    return f"{opening.format(name)} {' '.join(facts)}", exchanges


DESKS = (shop, hotel, team)


def desk(rng: Random, most_facts: int) -> Iterator[Message]:
    """Facts in the system prompt, then a user who asks for them, with some small talk."""
    facts, exchanges = rng.choice(DESKS)(rng, rng.randint(min(3, most_facts), most_facts))
    yield "system", facts
    rng.shuffle(exchanges)
    for exchange in exchanges:
        if rng.random() < 0.05:
            yield from as_messages([small_talk(rng)])
        yield from as_messages([exchange])


def archive(rng: Random, most_documents: int) -> Iterator[Message]:
    """Several documents in the system prompt, then a user who asks about one or the other by its name."""
    kinds = rng.choices(tuple(KINDS.values()), k=rng.randint(2, max(2, most_documents)))
    found = [write(kind, kind.invent(rng), rng) for kind in kinds]
    system = SYSTEM_PROMPT if rng.random() < 0.6 else rng.choice(OTHER_SYSTEM_PROMPTS)
    yield "system", "\n\n".join([system, *(document.text for document in found)])
    exchanges = [exchange for document in found for exchange in document.pointed_questions(rng)]
    rng.shuffle(exchanges)
    yield from as_messages(exchanges)


def chatter(rng: Random) -> Iterator[Message]:
    """Small talk and repetition without end."""
    if rng.random() < 0.9:
        yield "system", SYSTEM_PROMPT if rng.random() < 0.6 else rng.choice(OTHER_SYSTEM_PROMPTS)
    while True:
        yield from as_messages([small_talk(rng) if rng.random() < 0.3 else repetition(rng)])


def conversation(rng: Random, row_len: int = 256, progress: float = 1.0) -> Iterator[Message]:
    """One conversation of a random situation, which may be endless.

    ``row_len`` is about how many tokens will be taken of it. ``progress`` (0 to 1, the share of the training that is
    over) is the curriculum: at first mostly repetition and labelled forms, from which copying and looking up are learnt
    within minutes, then mostly prose.
    """
    chatter_share = max(0.05, 0.6 - 5 * progress)
    form_share = max(0.25, 0.8 - 3 * progress)
    dice = rng.random()
    if dice < chatter_share:
        return chatter(rng)
    if dice < chatter_share + 0.28:
        return desk(rng, most_facts=max(2, row_len // 32))
    if dice > 0.88 and progress > 0.1:
        return archive(rng, most_documents=row_len // 128)
    return reading(rng, form_share)


def plain_text(rng: Random) -> Iterator[str]:
    """Documents without a chat around them, without end."""
    while True:
        kind = rng.choice(tuple(KINDS.values()))
        yield write(kind, kind.invent(rng), rng).text
