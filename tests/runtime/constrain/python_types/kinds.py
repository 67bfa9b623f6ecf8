"""Types that pydantic reads, each with values of it as people and pydantic write them."""

from __future__ import annotations

import base64
import datetime as dt
import fractions
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic as p
from pydantic import Field, networks
from pydantic_extra_types import (
    color,
    coordinate,
    country,
    cron,
    currency_code,
    domain,
    dsn,
    epoch,
    language_code,
    mac_address,
    mime_types,
    mongo_object_id,
    pendulum_dt,
    s3,
    script_code,
    semantic_version,
    timezone_name,
)

from .own_types import (
    Box,
    Cat,
    Colour,
    Days,
    Dog,
    InBase64,
    InHex,
    InSeconds,
    Named,
    Open,
    Options,
    Pair,
    Point,
    Rights,
    Short,
    Size,
    Strict,
    Tree,
    Unit,
    strict,
)
from .values import (
    UTC,
    Values,
    cents,
    day_between,
    decimals,
    encoded,
    ipv4,
    ipv4_network,
    ipv6,
    ipv6_network,
    mail,
    moment,
    moment_between,
    one_of,
    sentence,
    some_bytes,
    span,
    span_between,
    url,
    word,
    zone,
)


def limited(kind: Any, **bounds: Any) -> Any:
    return Annotated[kind, Field(**bounds)]


FROM, TO = dt.datetime(2024, 1, 31, 12, 30, 15, 500_000), dt.datetime(2031, 2, 28)
DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)

NUMBERS: dict[str, tuple[Any, Values]] = {
    "int": (int, lambda rng: rng.randint(-(10**20), 10**20)),
    "int within": (limited(int, ge=-17, lt=2040, multiple_of=3), lambda rng: 3 * rng.randint(-5, 679)),
    "float": (float, one_of(0.25, -1e6, 1e20, 1e-7, -0.0, 5.0)),
    "float within": (limited(float, gt=0, le=1), lambda rng: rng.random() or 1.0),
    "bool": (bool, one_of(True, False)),
    "nullable": (int | None, one_of(None, 3)),
    "decimal": (Decimal, decimals(-(10**9), 10**9, 6)),
    "money": (limited(Decimal, max_digits=6, decimal_places=2), decimals(-9999, 9999, 2)),
    "price": (limited(Decimal, ge=0, le=1000, decimal_places=2), cents(0, 100_000)),
    "decimal between": (limited(Decimal, gt=Decimal("-12.5"), lt=Decimal("3.75"), max_digits=5), cents(-1249, 374)),
    "decimal at most": (limited(Decimal, le=Decimal("99.95")), cents(-99999, 9995)),
    "steps": (limited(Decimal, multiple_of=Decimal("0.01"), ge=0), cents(0, 10**6)),
    "fifths": (limited(Decimal, multiple_of=Decimal("0.2")), one_of()),
    "below 1": (limited(Decimal, max_digits=2, decimal_places=2), one_of(Decimal("0.25"), Decimal("-0.9"))),
    "digits": (limited(Decimal, max_digits=3), decimals(-999, 999, 3)),
    "whole": (limited(Decimal, decimal_places=0, gt=5), lambda rng: Decimal(rng.randint(6, 9999))),
    "fraction": (fractions.Fraction, lambda rng: fractions.Fraction(rng.randint(-99, 99), rng.randint(1, 99))),
    "complex": (complex, lambda rng: complex(rng.choice([0, 1.5, -2.25, 1e20]), rng.choice([0, 1.5, -2.0, 3e-7]))),
}
TIMES: dict[str, tuple[Any, Values]] = {
    "date": (dt.date, lambda rng: moment(rng).date()),
    "date within": (limited(dt.date, gt=FROM.date(), le=TO.date()), day_between(FROM.date() + DAY, TO.date())),
    "past date": (p.PastDate, lambda rng: dt.date.today() - rng.randint(2, 9999) * DAY),
    "future date": (p.FutureDate, lambda rng: dt.date.today() + rng.randint(2, 9999) * DAY),
    "past": (p.PastDatetime, lambda rng: dt.datetime.now(rng.choice([None, UTC])) - rng.randint(1, 99999) * HOUR),
    "future": (p.FutureDatetime, lambda rng: dt.datetime.now(rng.choice([None, UTC])) + rng.randint(2, 99999) * HOUR),
    "time": (dt.time, lambda rng: moment(rng).time().replace(tzinfo=rng.choice([None, zone(rng)]))),
    "time within": (
        limited(dt.time, ge=dt.time(9, 30), lt=dt.time(17, 0, 0, 250_000)),
        lambda rng: (dt.datetime(1, 1, 1, 9, 30) + 7.5 * HOUR * rng.random()).time(),
    ),
    "datetime": (dt.datetime, lambda rng: moment(rng).replace(tzinfo=rng.choice([None, zone(rng)]))),
    "naive": (p.NaiveDatetime, moment),
    "aware": (p.AwareDatetime, lambda rng: moment(rng).replace(tzinfo=zone(rng))),
    "datetime within": (limited(dt.datetime, ge=FROM, lt=TO), moment_between(FROM, TO)),
    "within, of UTC": (
        limited(dt.datetime, gt=FROM.replace(tzinfo=UTC), le=TO.replace(tzinfo=UTC)),
        lambda rng: (FROM + (TO - FROM) * rng.random()).replace(tzinfo=rng.choice([None, UTC])),
    ),
    "from an offset on": (
        limited(p.AwareDatetime, gt=FROM.replace(tzinfo=dt.timezone(5 * HOUR))),
        moment_between(FROM.replace(tzinfo=UTC), TO.replace(tzinfo=UTC)),
    ),
    "naive until": (limited(p.NaiveDatetime, lt=FROM), moment_between(dt.datetime(1, 1, 1), FROM)),
    "span": (dt.timedelta, span),
    "span within": (limited(dt.timedelta, ge=0 * DAY, le=36 * HOUR), span_between(0 * DAY, 36 * HOUR)),
    "span around 0": (limited(dt.timedelta, gt=-400 * DAY, lt=1.5 * HOUR), span_between(-399 * DAY, HOUR)),
}
TEXTS: dict[str, tuple[Any, Values]] = {
    "str": (str, sentence),
    "str within": (limited(str, min_length=2, max_length=5, pattern="^[a-zé ]+$"), one_of("aé", "a b c")),
    "stripped": (Annotated[str, p.StringConstraints(strip_whitespace=True, min_length=2)], one_of("a b", "éé")),
    "compiled": (limited(str, pattern=re.compile("b")), lambda rng: f"{sentence(rng)}b{sentence(rng)}"),
    "bytes": (bytes, lambda rng: sentence(rng).encode()),
    "bytes within": (limited(bytes, min_length=1, max_length=8), lambda rng: word(rng).encode()),
    "base64": (p.Base64Bytes, encoded(base64.b64encode, some_bytes)),
    "base64 of text": (p.Base64Str, encoded(base64.b64encode, lambda rng: word(rng).encode())),
    "base64 for URLs": (p.Base64UrlBytes, encoded(base64.urlsafe_b64encode, some_bytes)),
    "base64 of text for URLs": (p.Base64UrlStr, encoded(base64.urlsafe_b64encode, lambda rng: word(rng).encode())),
    "secret": (limited(p.SecretStr, min_length=3), one_of()),
    "secret bytes": (p.SecretBytes, one_of()),
    "secret number": (p.Secret[int], one_of()),
    "byte size": (p.ByteSize, one_of(0, 10**12, "1.5GB", "10 KiB", "3")),
    "path": (pathlib.Path, lambda rng: f"/a/{sentence(rng)}"),
    "pattern": (re.Pattern[str], one_of(r"^a+\d{2}$", "[a-z]*(x|y)")),
    "zone": (zoneinfo.ZoneInfo, one_of("Europe/Oslo", "UTC")),
    "uuid": (uuid.UUID, lambda rng: uuid.UUID(int=rng.getrandbits(128))),
    "uuid 1": (p.UUID1, one_of("12345678-1234-1678-9234-567812345678")),
    "uuid 4": (p.UUID4, lambda rng: uuid.UUID(int=rng.getrandbits(128), version=4)),
    "colour": (color.Color, one_of("red", "#abc", "#0a1b2c", "rgb(1, 2, 3)")),
    "country": (country.CountryAlpha2, one_of("NO", "DE")),
    "country of three": (country.CountryAlpha3, one_of("NOR")),
    "country by number": (country.CountryNumericCode, one_of("578")),
    "country by name": (country.CountryShortName, one_of("Norway")),
    "cron": (cron.CronStr, one_of("*/5 * * * *", "0 9 * * 1-5", "0,30 8-17 1 1 0")),
    "currency": (currency_code.Currency, one_of("NOK")),
    "ISO 4217": (currency_code.ISO4217, one_of("XAU")),
    "language": (language_code.LanguageAlpha2, one_of("no")),
    "language by name": (language_code.LanguageName, one_of("Norwegian")),
    "ISO 639-5": (language_code.ISO639_5, one_of("gem")),
    "media type": (mime_types.MimeType, one_of("text/plain")),
    "object id": (mongo_object_id.MongoObjectId, one_of("5f9f2f4b9d3c5a7b4c7e6c1d")),
    "S3": (s3.S3Path, one_of("s3://b/a/c.csv")),
    "script": (script_code.ISO_15924, one_of("Latn")),
    "version": (semantic_version.SemanticVersion, one_of("1.2.3", "1.2.3-rc.1+b5")),
    "zone name": (timezone_name.TimeZoneName, one_of("Europe/Oslo")),
}
ADDRESSES: dict[str, tuple[Any, Values]] = {
    "IPv4": (ipaddress.IPv4Address, ipv4),
    "IPv6": (ipaddress.IPv6Address, ipv6),
    "IP": (p.IPvAnyAddress, lambda rng: rng.choice([ipv4, ipv6])(rng)),
    "IPv4 network": (ipaddress.IPv4Network, ipv4_network),
    "IPv6 network": (ipaddress.IPv6Network, ipv6_network),
    "network": (p.IPvAnyNetwork, lambda rng: rng.choice([ipv4_network, ipv6_network])(rng)),
    "IPv4 interface": (ipaddress.IPv4Interface, lambda rng: f"{ipv4(rng)}/{rng.randint(0, 32)}"),
    "IPv6 interface": (ipaddress.IPv6Interface, lambda rng: f"{ipv6(rng)}/{rng.randint(0, 128)}"),
    "interface": (p.IPvAnyInterface, lambda rng: f"{ipv6(rng)}/{rng.randint(0, 128)}"),
    "any URL": (p.AnyUrl, lambda rng: rng.choice([url("http", "ftp"), url("git", "s3", ascii_only=True)])(rng)),
    "web": (p.HttpUrl, url("http", "https")),
    "socket": (p.WebsocketUrl, url("ws", "wss")),
    "ftp": (networks.FtpUrl, url("ftp")),
    "file": (p.FileUrl, one_of("file:///etc/hosts", "file://host/share/x.txt")),
    "postgres": (p.PostgresDsn, one_of("postgres://u:p@h:5432/db", "postgresql+asyncpg://u:p@h1:1,h2:22/db?x=1")),
    "redis": (p.RedisDsn, one_of("redis://localhost:6379/0", "redis://:pw@h:1/2")),
    "mongo": (p.MongoDsn, one_of("mongodb://u:p@h1:27017,h2:27017/?replicaSet=x", "mongodb+srv://u:p@h.x/db")),
    "amqp": (p.AmqpDsn, one_of("amqp://u:p@h:5672/vh")),
    "kafka": (p.KafkaDsn, one_of("kafka://h:9092")),
    "mysql": (p.MySQLDsn, one_of("mysql+pymysql://u:p@h:3306/db")),
    "mariadb": (p.MariaDBDsn, one_of("mariadb://u:p@h/db")),
    "nats": (networks.NatsDsn, one_of("nats://h:4222", "tls://h,g", "ws://h/")),
    "clickhouse": (networks.ClickHouseDsn, one_of("clickhouse+native://u@h:9000/db")),
    "snowflake": (networks.SnowflakeDsn, one_of("snowflake://u:p@acc/db")),
    "postgres, too": (dsn.PostgresDsn, one_of("postgres://u:p@h:5432/db")),
    "mail": (p.EmailStr, mail),
    "short mail": (limited(p.EmailStr, max_length=20), one_of("ada@example.com")),
    "named mail": (p.NameEmail, lambda rng: rng.choice([f"Ada Lovelace <{mail(rng)}>", mail(rng)])),
    "MAC": (mac_address.MacAddress, one_of("00:1b:44:11:3a:b7", "00-1B-44-11-3A-B7", "001b.4411.3ab7")),
    "domain": (domain.DomainStr, one_of("mail.example.co.uk")),
}
OTHERS: dict[str, tuple[Any, Values]] = {
    "any": (Any, one_of({"a": [1, None]}, "x")),
    "JSON value": (p.JsonValue, one_of({"a": [1, None]}, "x")),
    "hashable": (Hashable, one_of(1, "a", None)),
    "enum": (Colour, one_of(Colour.RED, Colour.ODD, Colour.THREE, Colour.HALF)),
    "enum of int": (Size, one_of(*Size)),
    "enum of str": (Unit, one_of(*Unit)),
    "flags": (Rights, lambda rng: Rights(rng.choice([1, 2, 3, 8, 11]))),
    "literal": (Literal["a", 1, None, True, 'é"'], one_of("a", 1, None, True, 'é"')),
    "literal bytes": (Literal[b"x", "y"], one_of("y")),
    "list": (limited(list[int], min_length=1, max_length=3), one_of([1, 2])),
    "set": (set[str], lambda rng: {word(rng), word(rng)}),
    "frozenset": (limited(frozenset[Literal[1, 2, 3]], min_length=2), one_of({1, 2, 3})),
    "deque": (limited(deque[int], max_length=3), one_of([1])),
    "tuple": (tuple[int, str], one_of((1, "a"))),
    "tuple of many": (tuple[bool, ...], one_of((True,), ())),
    "named tuple": (Pair, one_of(Pair(1, "b"))),
    "sequence": (Sequence[dt.date], lambda rng: [moment(rng).date()]),
    "iterable": (Iterable[int], one_of()),
    "typed dict": (Options, one_of({"a": 1}, {"a": 1, "b": "x"})),
    "dataclass": (Point, one_of()),
    "alias": (Named, one_of(Named(no=3))),
    "generic": (Box[p.HttpUrl], one_of(Box[p.HttpUrl](inner="http://a.de/"))),  # type: ignore[arg-type]
    "root": (Days, lambda rng: Days([moment(rng).date()])),
    "tree": (Tree, one_of(Tree(kids=[Tree(value=3)]))),
    "tagged": (limited(Cat | Dog, discriminator="kind"), one_of(Cat(), Dog(kind="puppy"))),
    "union": (int | dt.date | str | None, one_of(1, "x", None)),
    "open": (Open, one_of(Open(a=1, b=2))),  # type: ignore[call-arg]
    "short": (Short, lambda rng: Short(a=word(rng, longest=3))),
    "in Base64": (InBase64, lambda rng: InBase64.model_construct(a=some_bytes(rng))),
    "in hex": (InHex, lambda rng: InHex.model_construct(a=some_bytes(rng))),
    "in seconds": (InSeconds, lambda rng: InSeconds(a=span(rng), b=rng.choice([1.5, float("inf")]))),
    "strict": (Strict, strict),
    "counter": (Counter[str], one_of({"a": 3})),
    "defaultdict": (defaultdict[str, list[int]], one_of({"a": [3]})),
    "ordered": (OrderedDict[int, int], one_of({1: 3})),
    "latitude": (coordinate.Latitude, one_of(45.5, "-12.25")),
    "coordinate": (coordinate.Coordinate, one_of(coordinate.Coordinate(45.5, 20.0))),
    "epoch": (epoch.Number, one_of(1.5)),
    "whole epoch": (epoch.Integer, one_of(5)),
    "pendulum": (pendulum_dt.DateTime, moment),
    "pendulum's date": (pendulum_dt.Date, lambda rng: moment(rng).date()),
    "pendulum's time": (pendulum_dt.Time, lambda rng: moment(rng).time()),
    "pendulum's span": (pendulum_dt.Duration, lambda rng: abs(span(rng))),
}
VALUES = {**NUMBERS, **TIMES, **TEXTS, **ADDRESSES, **OTHERS}


def keyed(kind: Any, values: Values) -> tuple[Any, Values]:
    return dict[kind, int], lambda rng: {values(rng): 1}


_AS_KEYS = (
    *("int", "bool", "decimal", "price", "fraction", "date", "datetime", "span", "uuid 4", "mail", "str within"),
    *("enum of int", "enum of str", "literal bytes", "IPv4", "IPv4 network", "byte size", "bytes", "path"),
    *("MAC", "country", "zone", "domain"),
)
KEYS: dict[str, tuple[Any, Values]] = {
    **{name: keyed(*VALUES[name]) for name in _AS_KEYS},
    "float": keyed(float, one_of(0.25, -2.5, 1e16, 5.0)),
    "float within": keyed(limited(float, ge=0, lt=1), lambda rng: rng.random()),
    "int within": keyed(limited(int, gt=-3, le=120), lambda rng: rng.randint(-2, 120)),
    "either": keyed(int | bool | None, one_of(3)),
    "complex": keyed(complex, one_of()),
    "strict": keyed(p.StrictInt, one_of(3)),
    "validated": keyed(Annotated[int, p.AfterValidator(lambda number: number)], one_of(3)),
    "enum": keyed(Colour, one_of("red", 'gr"é')),
    "deep": (dict[int, list[dict[dt.date, int]]], one_of({3: [{dt.date(2024, 5, 31): 1}]})),
}
