"""Kinds of documents about people and what they do: person, event, booking, trip."""

from random import Random

from nano_document import BOOLEAN, DATE, INTEGER, STRING, TIME, Kind, Record, object_schema, yes_no
from nano_words import city_name, full_name, invented_word, job_title, number, with_article


def invent_person(rng: Random) -> Record:
    """Someone with an age, a job and a home."""
    return {
        "name": full_name(rng),
        "age": rng.randint(18, 89),
        "job": job_title(rng),
        "city": city_name(rng),
        "remote": rng.random() < 0.5,
    }


def speak_person(record: Record) -> dict[str, str]:
    """The first name and a pronoun, the job with its article, and where the work is done."""
    return {
        "first": record["name"].split()[0],
        "pronoun": ("He", "She")[len(record["name"]) % 2],
        "a_job": with_article(record["job"]),
        "work": "from home" if record["remote"] else "at the office",
        "remote_word": yes_no(record["remote"]),
    }


PERSON = Kind(
    "person",
    object_schema({"name": STRING, "age": INTEGER, "job": STRING, "city": STRING, "remote": BOOLEAN}),
    invent_person,
    speak_person,
    (
        "{name} is {age} years old.",
        "Meet {name}, {age} years old.",
        "Our guest today is {name}, aged {age}.",
        "This is {name}, who is {age}.",
        "{name} ({age}) is new here.",
    ),
    (
        (
            "{first} lives in {city}.",
            "{pronoun} lives in {city}.",
            "{first} has a house in {city}.",
            "Home is {city}.",
            "{pronoun} comes from {city}.",
        ),
        (
            "{first} is {a_job}.",
            "{pronoun} is {a_job}.",
            "{first} works as {a_job}.",
            "{pronoun} works as {a_job}.",
            "The job: {job}.",
        ),
        ("{first} works {work}.", "{pronoun} works {work}.", "The work is done {work}."),
    ),
    "Person: {name}",
    ("Age: {age}", "Job: {job}", "City: {city}", "Remote: {remote_word}"),
    (
        (("What is the name?", "Who is it?", "Who is this?"), "{name}"),
        (("How old is {first}?", "What is the age?", "How old is {name}?", "What is {first}'s age?"), "{age}"),
        (
            ("Where does {first} live?", "Which city?", "Where does {name} live?", "What is {first}'s city?"),
            "{city}",
        ),
        (
            ("What is the job?", "What does {first} do?", "What is {first}'s job?", "What is the job of {name}?"),
            "{job}",
        ),
        (("Does {first} work from home?", "Is the job remote?", "Does {name} work from home?"), "{remote_word}"),
    ),
)


def invent_event(rng: Random) -> Record:
    """Something that happens on a day at a venue."""
    return {
        "title": f"{invented_word(rng)} {rng.choice(('Fair', 'Concert', 'Market', 'Race', 'Festival', 'Party'))}",
        "date": f"20{rng.randint(20, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
        "venue": {
            "name": f"{invented_word(rng)} {rng.choice(('Hall', 'Hall', 'Park', 'House'))}",
            "city": city_name(rng),
        },
        "seats": number(rng, 4, 2),
    }


def speak_event(record: Record) -> dict[str, str]:
    """The venue's parts."""
    return {"hall": record["venue"]["name"], "city": record["venue"]["city"]}


EVENT = Kind(
    "event",
    object_schema(
        {
            "title": STRING,
            "date": DATE,
            "venue": object_schema({"name": STRING, "city": STRING}),
            "seats": INTEGER,
        }
    ),
    invent_event,
    speak_event,
    (
        "The {title} is on {date}.",
        "Come to the {title} on {date}.",
        "On {date} we hold the {title}.",
        "The date of the {title} is {date}.",
    ),
    (
        (
            "It takes place at {hall} in {city}.",
            "The venue is {hall} in {city}.",
            "We meet at {hall} in {city}.",
            "{hall} in {city} is the venue.",
        ),
        ("There are {seats} seats.", "We have {seats} seats.", "Seats: {seats}.", "There is room for {seats} people."),
    ),
    "Event: {title}",
    ("Date: {date}", "Venue: {hall}, {city}", "Seats: {seats}"),
    (
        (("What is the title?", "What is it called?", "Which event is it?"), "{title}"),
        (("When is it?", "What is the date?", "When is the {title}?"), "{date}"),
        (("What is the venue?", "Where do we meet?", "Where is it?"), "{hall}"),
        (("Which city?", "In which city is it?", "In which city is the {title}?"), "{city}"),
        (("How many seats?", "How many seats are there?"), "{seats}"),
    ),
)


def invent_booking(rng: Random) -> Record:
    """A guest in a hotel."""
    return {
        "guest": full_name(rng),
        "hotel": invented_word(rng),
        "room": rng.randint(10, 999),
        "nights": rng.randint(2, 30),
        "breakfast": rng.random() < 0.5,
    }


def speak_booking(record: Record) -> dict[str, str]:
    """With or without breakfast."""
    return {"board": "with" if record["breakfast"] else "without", "breakfast_word": yes_no(record["breakfast"])}


BOOKING = Kind(
    "booking",
    object_schema({"guest": STRING, "hotel": STRING, "room": INTEGER, "nights": INTEGER, "breakfast": BOOLEAN}),
    invent_booking,
    speak_booking,
    (
        "{guest} stays at the hotel {hotel}.",
        "The hotel {hotel} expects {guest}.",
        "A booking for {guest}, hotel {hotel}.",
        "Hotel {hotel} has a booking for {guest}.",
    ),
    (
        ("The room is {room}.", "The key is for room {room}.", "Room {room} is ready.", "The guest has room {room}."),
        (
            "The stay is {nights} nights.",
            "It is for {nights} nights.",
            "Nights: {nights}.",
            "We count {nights} nights.",
        ),
        ("The booking is {board} breakfast.", "It is {board} breakfast.", "The guest comes {board} breakfast."),
    ),
    "Booking: {guest}",
    ("Hotel: {hotel}", "Room: {room}", "Nights: {nights}", "Breakfast: {breakfast_word}"),
    (
        (("Who is the guest?", "What is the name?", "Who has the booking?"), "{guest}"),
        (("Which hotel?", "What is the hotel?", "Where does {guest} stay?"), "{hotel}"),
        (("Which room?", "What is the room?", "Which room has {guest}?"), "{room}"),
        (("How many nights?", "How long is the stay?"), "{nights}"),
        (("Is there breakfast?", "With breakfast?"), "{breakfast_word}"),
    ),
)


def invent_trip(rng: Random) -> Record:
    """A journey between two cities."""
    return {
        "traveler": full_name(rng),
        "start": city_name(rng),
        "end": city_name(rng),
        "time": f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
        "by": rng.choice(("train", "bus", "ship", "plane")),
    }


TRIP = Kind(
    "trip",
    object_schema(
        {
            "traveler": STRING,
            "start": STRING,
            "end": STRING,
            "time": TIME,
            "by": {"enum": ["train", "bus", "ship", "plane"]},
        }
    ),
    invent_trip,
    lambda record: {},
    (
        "{traveler} goes by {by}.",
        "The traveler is {traveler}, by {by}.",
        "A {by} trip for {traveler}.",
        "{traveler} takes the {by}.",
    ),
    (
        (
            "The trip goes from {start} to {end}.",
            "It leads from {start} to {end}.",
            "From {start} the way is to {end}.",
            "It starts in {start} and ends in {end}.",
        ),
        ("It leaves at {time}.", "The time is {time}.", "Be there at {time}.", "It starts at {time}."),
    ),
    "Trip: {traveler}",
    ("From: {start}", "To: {end}", "Time: {time}", "By: {by}"),
    (
        (("Who is the traveler?", "What is the name?", "Who goes?"), "{traveler}"),
        (("Where does the trip start?", "From where?", "Where does {traveler} start?"), "{start}"),
        (("Where does the trip end?", "To where?", "Where does {traveler} go?"), "{end}"),
        (("When does it leave?", "What is the time?", "At what time?"), "{time}"),
        (("Is it by train, bus, ship or plane?", "How does {traveler} go?"), "{by}"),
    ),
)
