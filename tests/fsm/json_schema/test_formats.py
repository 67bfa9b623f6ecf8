"""Formats against independent checkers: what is written passes them, and typical valid texts can be written."""

from __future__ import annotations

import json
import random
import re

import jsonschema
import pytest

from phloem.fsm import Compiler
from phloem.fsm.json_schema.demands import demands
from phloem.fsm.json_schema.formats import FORMATS, format_language, is_format
from phloem.fsm.text.dfa import Dfa

from ..vocabularies import BYTES

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
NUM_TEXTS = 200

VALID = {
    "date": ["2024-02-29", "1999-12-31", "2000-02-29", "0001-01-01"],
    "time": ["12:00:00Z", "23:59:59.999999+05:30", "00:00:00-00:00", "12:00:00z"],
    "date-time": ["2024-02-29T12:00:00Z", "2024-01-01t00:00:00.5-08:00"],
    "duration": ["P1D", "PT1H", "P1Y2M3DT4H5M6S", "P2W", "PT0S", "P1YT5S", "PT36H"],
    "email": ["a@b.co", "a+b@example.org", '"joe bloggs"@example.com', "joe@[127.0.0.1]", "joe@[IPv6:::1]"],
    "idn-email": ["실례@실례.테스트", "a@b.c", "joe@[127.0.0.1]", '"joe b"@example.com'],
    "hostname": ["www.example.com", "1host", "ab-cd.e-f-g", "a-b--c", "abcd--e", "localhost", "a" * 63, "a-b.c"],
    "idn-hostname": ["실례.테스트", "example.com", "bücher.de", "例え.テスト", "उदाहरण.भारत", "ไทย.th", "a" * 62],
    "ipv4": ["192.168.0.1", "0.0.0.0", "255.255.255.255"],
    "ipv6": ["::1", "::", "2001:db8::1", "::ffff:192.168.0.1", "1:2:3:4:5:6:7:8"],
    "uri": ["http://a.b", "mailto:a@b.c", "urn:isbn:0-395-36341-1", "http://[::1]:80/a?b#c", "tel:+1-816-555-1212"],
    "uri-reference": ["/a/b", "#f", "?q", "../x", "//h/p", "", "a", "http://x"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://a"],
    "iri-reference": ["/âππ", "#ƒrägmênt", ""],
    "uri-template": ["http://example.com/{term:1}/{term}", "{+path}/here", "{?x,y*}", "{;x}", "{.a.b}", "{/var*}"],
    "uuid": ["2EB8AA08-AA98-11EA-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"],
    "json-pointer": ["", "/", "/a~0b/~1", "/foo/0", "/ä"],
    "relative-json-pointer": ["1", "0/foo", "2/0/baz", "0#", "10/a"],
    "regex": [
        "^a+$",
        "^[^#]*#?$",
        "^a|b$",
        "[-A-Za-z0-9._]+\\bx",
        "[a-z]{2,3}",
        "([abc])+\\s+$",
        "(a|b)*c",
        "(?:x(y|z)?)",
        "^(\\d{3})-\\w+$",
        "[^\\d]",
        "x{10,99}",
    ],
    "base64": ["", "YQ==", "YWI=", "YWJj"],
}
NOT_WRITTEN = {
    "date": ["0000-01-01"],
    "time": ["23:59:60Z", "15:59:60.5-08:00"],
    "date-time": ["1998-12-31T23:59:60Z"],
    "hostname": ["xn--4gbwdl.xn--wgbh1c", "example.com."],
    "email": ["a@xn--bcher-kva.example"],
    "idn-email": ["a@xn--bcher-kva.example"],
    "idn-hostname": ["xn--4gbwdl.xn--wgbh1c", "Bücher.de", "ü" * 20, "a.b.c.d.e"],
    "uri-template": ["{%41}", "{x:1000}"],
    "relative-json-pointer": ["105", "0+1/a"],
    "regex": ["(?<name>a)", "(((a)))", "a(?=b)"],
}
"""Texts that have the format, but are not written."""
INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "24-01-01"],
    "time": ["24:00:00Z", "12:60:00Z", "12:00:00", "12:00Z"],
    "duration": ["P", "PT", "P1", "1D", "P1W2D"],
    "email": ["a", "@b", "a@", "a..b@c", ".a@b", "a b@c", "a@xn--x", "a@b.XN--x-y"],
    "idn-email": ["a", "a..b@c", ".a@b", "a@xn--x.b"],
    "hostname": ["", "-a", "a-", "a_b", "a" * 64, "a..b", "xn--x", "a.XN--aa---o47jg78q", "ab--c", "ab--"],
    "idn-hostname": ["", "-a", "ab--c", "a_b", "ü" * 60, "〮한", "a.-ü"],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4"],
    "ipv6": ["1::2::3", "12345::", "1:2:3:4:5:6:7", "::1%eth0"],
    "uri": ["//a", "a b", "http://[::1", "http://a/%zz", ":a"],
    "uri-template": ["{", "}", "{a", "{}"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638"],
    "json-pointer": ["a", "/~", "/~2"],
    "relative-json-pointer": ["", "/a", "01/a", "-1"],
    "regex": ["(", "[b-a]", "a**", "x{3,2}", "x{10,9}", "\\"],
    "base64": ["Y", "YQ=", "YQ", "Y==="],
}


def random_text(language: Dfa, rng: random.Random, length: int) -> str:
    """A text that turns towards the end after `length` characters."""
    alphabet = language.alphabet
    ends = [*alphabet.starts[1:].tolist(), 0x110000]
    ranges: dict[int, list[tuple[int, int]]] = {}
    for begin, end, class_id in zip(alphabet.starts.tolist(), ends, alphabet.classes.tolist(), strict=True):
        ranges.setdefault(class_id, []).append((begin, end))
    state, text = language.start_state, ""
    while True:
        targets = language.table[state].tolist()
        options = [class_id for class_id, target in enumerate(targets) if target]
        if language.accepting[state] and (not options or len(text) >= length or rng.random() < 0.05):
            return text
        if len(text) >= length:
            options = [c for c in options if language.distance[targets[c]] < language.distance[state]]
        class_id = rng.choice(options)
        text += chr(rng.randrange(*rng.choice(ranges[class_id])))
        state = targets[class_id]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of `re`, about [[
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_passes_the_checkers(name: str) -> None:
    rng, language = random.Random(name), format_language(name)
    for _ in range(NUM_TEXTS):
        text = random_text(language, rng, rng.choice((3, 10, 50)))
        assert language.accepts(text)
        assert CHECKER.conforms(text, name), ascii(text)
        if name == "regex":
            re.compile(text)


@pytest.mark.parametrize("name", VALID)
def test_typical_texts_can_be_written(name: str) -> None:
    assert [text for text in VALID[name] if not format_language(name).accepts(text)] == []
    assert [text for text in VALID[name] if not CHECKER.conforms(text, name)] == []


@pytest.mark.parametrize("name", INVALID)
def test_other_texts_cannot(name: str) -> None:
    assert [text for text in INVALID[name] if format_language(name).accepts(text)] == []


@pytest.mark.parametrize("name", ["byte", "int32", "int64", "float", "double", "binary", "password", "color"])
def test_names_that_json_schema_does_not_have_are_annotations(name: str) -> None:
    assert not is_format(name)
    constraint = Compiler(BYTES).json_schema({"format": name})
    assert all(map(constraint.accepts, (b'"caBundle: 1/2"', b'"\xc3\xa9"', b"1.5", b"99999999999999999999")))
    (annotation,) = demands({"format": name})[1]
    assert (annotation.pointer, "not enforced" in annotation.reason) == ("/format", True)


@pytest.mark.parametrize("name", FORMATS)
def test_a_negation_forbids_what_the_format_may_have(name: str) -> None:
    sure, possible = format_language(name), format_language(name, for_all=False)
    assert sure.difference(possible).is_empty()
    refused = [text for text in NOT_WRITTEN.get(name, ()) if not possible.accepts(text) or sure.accepts(text)]
    assert refused == []
    negated = Compiler(BYTES).json_schema({"type": ["string", "null"], "not": {"type": "string", "format": name}})
    texts = (*VALID.get(name, ()), *NOT_WRITTEN.get(name, ()))
    assert not any(negated.accepts(json.dumps(text, ensure_ascii=False).encode()) for text in texts)
