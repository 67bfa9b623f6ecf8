"""Invented words and small closed lists: the raw material of the bundled model's documents.

Almost every value of a document is drawn from here. Names are made of syllables, so that there are far more of them
than a small model can remember and the only way to give one back is to copy it. Words of closed lists (jobs,
colours, things) appear in exactly one surface form, never in the plural, and half of the time an invented word
stands in their place: a model that guesses from the list's prior is then wrong often enough to learn to look.

Knows nothing of documents, tokenizers or training. Everything is a pure function of the ``random.Random`` given.
"""

from random import Random


def listed(words: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(words.split())


FIRST_SYLLABLES = listed(
    "Bra Tol Ven Kar Mel Dor Lin Sar Hol Fen Gri Pol Ram Nor Zel Jan Tas Vil Cor Bel Mar Kel Dun Ros "
    "Sil Tor Wen Yar Har Lum Nev Pra Ober Ada Iva Ulf El An"
)
MIDDLE_SYLLABLES = listed("va na do ta ko lo mi ra sa ja mo fi gu ri le be")
LAST_SYLLABLES = listed(
    "rik len mar sen vin ris gan ton bel dra nik ven lin ter pel ran tos wick dal mund sky ley ska za"
)

ONSETS = listed("b br c ch d dr f fl g gr h j k kl l m n p ph pl pr qu r s sc sh sl sp st str t th tr v w y z")
VOWELS = listed("a e i o u a e i o u ai ea ee ie oo ou")
CODAS = ("", "", "", "n", "r", "l", "s", "k", "m", "t", "ck", "nd", "x", "ng", "st", "rd", "lt", "y")

FIRST_NAMES = listed(
    "Ada Alan Alice Amir Anna Ben Bob Carla Chen Clara David Diego Elena Emma Eric Eva Farah Felix Fiona George "
    "Grace Hana Hugo Ines Ivan Jack James Jane Jim John Julia Kai Kate Lara Leo Liam Lily Linus Lucy Maria Mark "
    "Mary Maya Mia Mike Nadia Nina Noah Olga Oscar Paul Peter Rosa Ruth Sam Sara Sofia Tom Uma Vera Yuki Zoe"
)
LAST_NAMES = listed(
    "Adams Baker Brown Byron Chen Clark Cohen Cruz Davis Diaz Evans Fischer Garcia Gray Green Hall Hopper Ito Jones "
    "Kaur Khan Kim King Klein Lee Lopez Lovelace Martin Meyer Miller Moore Nguyen Novak Okafor Park Patel Perez "
    "Rossi Sato Schmidt Silva Singh Smith Stone Taylor Turing Walker Wang Weber White Wilson Wood Wright Young"
)
CITIES = listed(
    "Amsterdam Athens Berlin Boston Cairo Chicago Delhi Dublin Geneva Hamburg Helsinki Kyoto Lagos Leeds Lima "
    "Lisbon London Lyon Madrid Milan Munich Nairobi Oslo Oxford Paris Porto Prague Quito Riga Rome Seoul Sofia "
    "Tokyo Toronto Turin Vienna Warsaw Zurich"
)
JOBS = listed(
    "baker barber builder butcher carpenter chemist clerk cook dancer dentist designer doctor driver engineer farmer "
    "fisher gardener guard judge lawyer librarian mechanic miner nurse painter pilot plumber potter programmer "
    "sailor singer tailor teacher weaver welder writer"
)
RANKS = listed("senior junior chief head")
THINGS = listed(
    "basket bell bench blanket bottle bowl brush bucket cable camera candle carpet chair clock cup curtain desk "
    "door drum fan fork glove guitar hammer hat jacket kettle knife ladder lamp laptop lock mirror mug needle pan "
    "pen phone pillow pipe plate printer radio ring rope saw scarf screen shelf shirt shoe sofa spoon stove table "
    "tent towel vase wallet"
)
COLORS = listed("black blue brown gold gray green orange pink purple red silver violet white yellow")


def freely_spelt(rng: Random) -> str:
    """Two or three syllables of any letters: a word that the tokenizer has not met."""
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.choice((1, 2, 2, 3))))


def invented_word(rng: Random) -> str:
    """A capitalised made-up name: two or three listed syllables, one in five spelt freely instead."""
    if rng.random() < 0.2:
        return freely_spelt(rng).capitalize()
    middle = rng.choice(MIDDLE_SYLLABLES) if rng.random() < 0.5 else ""
    return rng.choice(FIRST_SYLLABLES) + middle + rng.choice(LAST_SYLLABLES)


def first_name(rng: Random) -> str:
    """A given name, now and then a real one."""
    return rng.choice(FIRST_NAMES) if rng.random() < 0.2 else invented_word(rng)


def full_name(rng: Random) -> str:
    """A person: two words."""
    return f"{first_name(rng)} {rng.choice(LAST_NAMES) if rng.random() < 0.2 else invented_word(rng)}"


def city_name(rng: Random) -> str:
    """A city, now and then a real one."""
    return rng.choice(CITIES) if rng.random() < 0.2 else invented_word(rng)


def job_title(rng: Random) -> str:
    """A job, half of the time invented, sometimes with a rank before it."""
    job = rng.choice(JOBS) if rng.random() < 0.5 else invented_word(rng).lower()
    return f"{rng.choice(RANKS)} {job}" if rng.random() < 0.15 else job


def thing(rng: Random) -> str:
    """An object, half of the time invented, sometimes with a colour before it."""
    name = rng.choice(THINGS) if rng.random() < 0.5 else invented_word(rng).lower()
    return f"{rng.choice(COLORS)} {name}" if rng.random() < 0.15 else name


def with_article(noun: str) -> str:
    """The noun after "a" or "an"."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def number(rng: Random, most_digits: int, least_digits: int = 1) -> int:
    """A number whose count of digits is uniform, so that no length dominates."""
    num_digits = rng.randint(least_digits, most_digits)
    return rng.randint(10 ** (num_digits - 1), 10**num_digits - 1)
