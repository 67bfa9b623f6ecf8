"""Patterns, grammars and tags made to hurt (see `bombs.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def patterns() -> Iterator[tuple[str, str]]:
    """Regular expressions that explode when they are unrolled, determinised or backtracked."""
    yield "(.{1,1000}){1,1000}", "(.{1,1000}){1,1000}"
    yield "[ab]*a[ab]{30}", "[ab]*a[ab]{30}"
    yield "nested quantifiers", "((a{1,100}){1,100}){1,100}"
    yield "(a*)*b", "(a*)*b"
    yield "(x+x+)+y", "(x+x+)+y"
    yield "30,000 nested groups", "(" * 30_000 + "a" + ")" * 30_000
    yield "30,000 open brackets", "(" * 30_000
    yield "30,000 nested optional groups", "(" * 30_000 + "a" + ")?" * 30_000
    yield "100,000 alternatives", "|".join(f"w{index}" for index in range(100_000))
    yield r"(\p{L}{1,100}\d?){1,100}", r"(\p{L}{1,100}\d?){1,100}"
    yield "look-aheads for 12 letters", "".join(f"(?=.*{chr(97 + i)})" for i in range(12)) + ".*"
    yield ".*a.{20}", ".*a.{20}"
    yield "(.{1,1000}b?){1,1000}", "(.{1,1000}b?){1,1000}"
    yield "(?:[ab]{0,500}){0,500}c", "(?:[ab]{0,500}){0,500}c"
    yield "1,000 look-aheads within each other", "(?=a" * 1000 + ")" * 1000 + "a+"
    yield "40 look-aheads that disagree", "".join(f"(?=.{{{n}}}[^{chr(97 + n % 26)}])" for n in range(40)) + ".*"
    yield "negative look-aheads in a loop", "(?:(?!a.{0,30}b)(?!c.{0,30}d).)*"
    yield "look-behinds in a loop", "(?:.(?<!a.{12}b))*"
    yield "look-ahead over a counted gap", "(?=.{0,5000}x)[a-y]{0,9999}z"
    yield "1,000 optional letters", "a?" * 1000 + "a" * 1000
    yield "classes of every kind, repeated", r"(?:[\p{L}a-z]|\p{Script=Greek}|\w|\d){0,1000}"
    yield "the empty loop of empty loops", "(?:(?:(?:)*)*)*"
    yield "{0} of everything", "(?:(?:.{0,1000}){0,1000}){0}"
    yield "100,000 anchors", "^" * 50_000 + "$" * 50_000
    yield "2,000 words in any case", "(?i)" + "|".join(f"word{n}Straße" for n in range(2000))
    yield "look-aheads that count", "(?=.{0,500}a)(?=.{0,499}b)(?=.{0,498}c).*"
    yield "look-aheads within look-aheads in a loop", "(?:(?=a(?=b(?!c(?=d)))|[^a])." + "(?!x(?=y.{0,9}z))){0,200}"
    yield "a literal of 100,000 characters", "ab" * 50_000
    yield "a literal of 100,000 characters in any case", "(?i)" + "aß" * 50_000
    yield "100,000 classes", "[a-c]" * 100_000
    yield "100,000 optional letters", "a?" * 100_000
    yield "letters of every script, counted twice", r"(?:\p{L}{5,500}\p{N}{0,500}){5,500}"
    yield "counts of counts", "(?:(?:a{3,7}){11,13}b?){17,19}c{23,29}"
    yield "alternatives that begin alike", "|".join("a" * n + "b" for n in range(2000))
    yield "an exact count of a wide class", r"^\w{1000}\d{1000}$"
    yield "dots and stars", ".*a.*b.*c.*d.*e.*f.*g.*h.*i.*j.*k.*l"
    yield "negated classes in a loop", "(?:[^a]*[^b]*[^c]*[^d]*)*x[^a]{50}"
    yield "(?:a|b|ab){0,1000} and an end", "(?:a|b|ab){0,1000}(?:ba|a){0,1000}c"
    yield from look_arounds()
    yield from classes()


def look_arounds() -> Iterator[tuple[str, str]]:
    """Look-aheads and look-behinds: in loops, within each other, over counts."""
    yield "look-aheads in a loop", "(?:(?=.{0,20}a)(?=.{0,30}b)(?!.{0,25}c).)*"
    yield "look-aheads for words in a loop", "(?:(?!" + "|".join(f"word{n}" for n in range(200)) + ").)*"
    yield "look-behinds of counted classes", r"(?:(?<=[a-m]{3,12})x|(?<![n-z]{2,11})y|[a-z])*"
    yield "look-behinds and look-aheads, in turn", "(?:(?<=a.{5})(?=b.{5}c)|(?<!d.{4})(?!e.{4}f)[a-z])*"
    yield "a look-ahead for each of 300 letters", "".join(f"(?:(?=.{{0,{n}}}x)a|b)" for n in range(300))
    yield "20 look-aheads in a loop", "(?:" + "".join(f"(?!.{{{n}}}{chr(97 + n)})" for n in range(20)) + ".)*"
    yield "look-aheads after options", "|".join(f"(?=.*{chr(97 + n)}.{{5}})(?!.*{n})[a-z]*{n}" for n in range(26))
    yield "look-aheads to the end in a loop", "(?:a(?=.*b$)|b(?=.*c$)|c(?=[^d]*$)|.)*"
    yield "word boundaries in a loop", r"(?:\b\w{1,30}\b\W{1,30}|\B[a-c]\B)*(?=\b)"
    yield "line anchors in a loop", r"(?ms)(?:^.{0,40}$\n?)*(?=^x)"
    yield "20 look-aheads within each other", "(?:" + "(?=[a-c]{0,9}" * 20 + "d" + ")" * 20 + "[a-d])*"
    yield "negated look-aheads within each other", "(?:" + "(?!a.{0,3}" * 12 + "z" + ")" * 12 + "[a-z])*"
    yield "look-behinds over Unicode", r"(?:(?<!\p{L}{3}\p{N}{0,9})\p{Lu}|(?<=\p{Ll}.{6})\p{Nd}|\p{L})*"
    yield "2,000 look-aheads at the start", "".join(f"(?!{n}:)" for n in range(2000)) + ".*"
    yield "a look-ahead of 5,000 words", "(?=" + "|".join(f"w{n}" for n in range(5000)) + r")\w*"
    yield "a look-ahead, repeated", "(?:(?=.{3,300}x)a{1,300}){1,300}"
    yield "passwords", r"(?=(?:.*\d){5})(?=(?:.*[a-z]){5})(?=(?:.*[A-Z]){5})(?!.*(?:000|111|abc))[!-~]{20,60}"


def classes() -> Iterator[tuple[str, str]]:
    """Classes of characters: in any case, of Unicode, very many; and counts of what begins alike."""
    yield "classes in any case", r"(?i)[\p{L}]{0,200}[^\p{Lu}ß-ſ]{0,200}(?:ǆ|Ω|ﬀ)*"
    many = "".join(chr(n) for n in range(0x4E00, 0x4E00 + 4000, 2))
    yield "a class of 2,000 characters, in any case", f"(?i)[{many}]{{1,300}}[^{many}]*"
    yield "20,000 classes, all different", "".join(f"[{chr(0x3400 + n)}-{chr(0x9000)}]" for n in range(20_000))
    yield (
        "2,000 classes in a loop",
        "(?:" + "|".join(f"[{chr(0x400 + n)}-{chr(0x800 + n)}]x" for n in range(2000)) + ")*",
    )
    yield "5,000 classes in any case", "(?i)" + "".join(f"[{chr(0x100 + n % 9000)}-{chr(0x4000)}]" for n in range(5000))
    kinds = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Sm", "Sc", "Sk", "So")
    yield "all kinds of characters, and not", "".join(rf"(?:\p{{{one}}}|[^\p{{{one}}}\d]){{0,9}}" for one in kinds)
    yield (
        "3,000 kinds of characters",
        "".join(rf"[\p{{{kinds[n % 17]}}}\P{{{kinds[n * 5 % 17]}}}{chr(97 + n % 26)}]" for n in range(3000)),
    )
    yield (
        "counted alternatives that begin alike",
        "(?:(?:" + "|".join("ab" * n + "c" for n in range(30)) + "){2,40}x?){2,40}",
    )
    yield "counts of three levels, two letters", "(?:(?:(?:a|ab|aba){1,12}c?){1,12}b?){1,12}"
    yield "50,000 alternatives with classes", "|".join(f"[a-z]{n}" for n in range(50_000))
    yield "5,000 alternatives with stars", "|".join(f"a*{n}b*" for n in range(5000))
    yield "a reversed distance", "(?:a|b)*a(?:a|b){14}(?:c|d)*c(?:c|d){14}"
    yield "10,000 nested groups with counts", "(?:" * 10_000 + "a" + "){0,2}" * 10_000
    yield "50,000 nested alternatives", "(?:a|" * 50_000 + "b" + ")" * 50_000
    yield "20,000 named groups", "".join(f"(?P<n{n}>[a-z]?)" for n in range(20_000))
    yield "flags, on and off", "(?i:a(?-i:b(?s:.(?x: c # d\n)))){0,500}" * 20
    yield "an unclosed class of 200,000", "[" + "a-z" * 66_000
    yield "an unknown class after 100,000 letters", "a" * 100_000 + r"\p{Nonsense}"
    yield "a backreference after 100,000 groups", "(a)" * 60_000 + r"\1"
    yield "{10000000} of everything", "(?:.{10000000}){10000000}"
    yield "(?:a{0,1000000}b){0,1000000}", "(?:a{0,1000000}b){0,1000000}"
    yield "what overlaps, counted", r"(?:\d{1,3}|[0-5]{2,4}|[3-9a-f]{1,5}){3,90}-(?:[a-f]{1,9}|[c-z]{2,8}){3,90}"


def grammars() -> Iterator[tuple[str, str]]:
    """Grammars: long chains, deep brackets, ambiguity."""
    yield "30,000 nested brackets", "root ::= " + "(" * 30_000 + '"a"' + ")" * 30_000
    rules = "\n".join(f'r{index} ::= "a" r{index + 1} | "b"' for index in range(10_000))
    yield "chain of 10,000 rules", f'root ::= r0\n{rules}\nr10000 ::= "c"'
    doubling = "\n".join(f"r{index} ::= r{index + 1} r{index + 1}" for index in range(100))
    yield "100 doublings", f'root ::= r0\n{doubling}\nr100 ::= "a"'
    yield (
        "left recursion through 64 rules",
        "\n".join(["root ::= r0", *(f'r{n} ::= r{(n + 1) % 64} "x" | "{n}"' for n in range(64))]),
    )
    hidden = "\n".join(f"r{n} ::= e r{(n + 1) % 60} e | r{n} r{n} | [a-z]" for n in range(60))
    yield "left recursion hidden after what may be empty", f'root ::= r0\ne ::= "" | e e\n{hidden}'
    yield "e ::= e e | e e e | (e*)*", 'root ::= e\ne ::= e e | e e e | (e*)* | "a"'
    yield "loops of nothing", 'root ::= (((""*)*)*)* a\na ::= (b*)* | ""\nb ::= (a*)* "x"?'
    yield (
        "10,000 alternatives that call each other",
        "root ::= "
        + " | ".join(f"r{n}" for n in range(3000))
        + "\n"
        + "\n".join(f'r{n} ::= "a" r{n * 7 % 3000} | "b" r{n * 11 % 3000} | "c"' for n in range(3000)),
    )
    yield "repetitions of repetitions", 'root ::= ((("a"{0,1000} "b"?){0,1000} "c"?){0,1000} "d"?){0,1000}'
    yield "one rule of 100,000 literals", "root ::= " + " | ".join(f'"w{n}"' for n in range(100_000))
    terminals = [f"T{n}: /[a-z]{{1,{n + 1}}}x?/" for n in range(60)]
    start = "start: (" + " | ".join(f"T{n}" for n in range(60)) + ")*"
    yield "Lark terminals that overlap", "\n".join([start, *terminals, '%ignore " "'])
    yield (
        "Lark terminals within each other",
        "start: T0\n" + "\n".join(f"T{n}: T{n + 1} T{n + 1}" for n in range(40)) + '\nT40: "a"',
    )
    yield "Lark, 3,000 literals next to each other", "start: (a a)*\na: " + " | ".join(f'"x{n}"' for n in range(3000))
    yield "ambiguous", 'root ::= (root2)* \nroot2 ::= "a" | "aa" | "a" root2'
    yield "sums of sums", 'root ::= e\ne ::= e "+" e | e "*" e | e "-" e | "(" e ")" | [0-9]+'
    every = " | ".join(f'r{n} "{n % 10}"' for n in range(200))
    yield (
        "200 rules that begin with each other",
        "root ::= r0\n" + "\n".join(f'r{n} ::= {every} | "x{n}"' for n in range(200)),
    )
    yield (
        "a cycle of rules that may be empty",
        "\n".join(
            ["root ::= r0", *(f'r{n} ::= r{(n + 1) % 500} r{(n * 3 + 1) % 500} | "" | "{n}"' for n in range(500))]
        ),
    )
    yield "a literal of 1,000,000 characters", 'root ::= "' + "ab" * 500_000 + '"'
    yield "1,000 literals of 1,000 characters", "root ::= " + " | ".join(f'"{"x" * 1000}{n}"' for n in range(1000))
    yield (
        "10,000 unused rules",
        'root ::= "a"\n' + "\n".join(f'r{n} ::= "b" r{n + 1}?' for n in range(10_000)) + '\nr10000 ::= "c"',
    )
    yield "palindromes", 'root ::= p\np ::= "a" p "a" | "b" p "b" | "a" | "b" | ""'
    yield "brackets without end", 'root ::= s\ns ::= s s | "(" s ")" | "[" s "]" | ""'
    words = "\n".join(f'W{n}: "word{n}" | /w{n}[a-z]*/' for n in range(300))
    yield "300 Lark keywords", "start: (" + " | ".join(f"W{n}" for n in range(300)) + ')+\n%ignore " "\n' + words
    yield "Lark repetition of repetitions", 'start: (a~1..500 b~0..500)~1..500\na: "x"~1..50\nb: /y{1,50}/'
    yield (
        "Lark terminals of Unicode",
        "start: (A | B)~1..300\nA: /\\w{1,200}/\nB: /[^\\W\\d]{3,100}\\d?/\n%ignore /\\s{1,30}/",
    )
    yield from more_grammars()


def more_grammars() -> Iterator[tuple[str, str]]:
    """Grammars that are read in very many ways, call each other, count or rank."""
    yield "s ::= s s s | s s | nothing", 'root ::= s\ns ::= s s s | s s | "a" | ""'
    yield (
        "every rule any two others",
        "root ::= r0\n"
        + "\n".join(f'r{n} ::= "a" r{n * 7 % 50} r{n * 11 % 50} | r{n * 3 % 50} "b" | ""' for n in range(50)),
    )
    yield (
        "200 rules of 50 calls",
        "root ::= r0\n"
        + "\n".join(
            f"r{n} ::= " + " | ".join(f'"{m}" r{(n * m + m) % 200}' for m in range(50)) + ' | "x"' for n in range(200)
        ),
    )
    yield (
        "3,000 rules that begin with the next",
        "root ::= r0\n" + "\n".join(f'r{n} ::= r{n + 1} "{n}" | "x"' for n in range(3000)) + '\nr3000 ::= "y"',
    )
    yield (
        "mutual left recursion of 12, all with all",
        "root ::= r0\n"
        + "\n".join(f"r{n} ::= " + " | ".join(f'r{m} "{m}"' for m in range(12)) + f' | "x{n}"' for n in range(12)),
    )
    yield "a count of 1,000,000", 'root ::= ("a" | "b" [0-9]+){1000000}'
    yield (
        "counts of counts of rules",
        'root ::= a{1,5000}\na ::= b{1,5000} "x"?\nb ::= c{1,5000} "y"?\nc ::= [a-z]{1,5000}',
    )
    yield "optional parts, 5,000", "root ::= " + " ".join(f'"{n % 10}"?' for n in range(5000))
    yield (
        "optional rules, 500, one like the other",
        "root ::= " + " ".join("(a | b)?" for _ in range(500)) + '\na ::= "x" a?\nb ::= "x" b?',
    )
    yield "20,000 classes in EBNF", "root ::= " + " ".join(f"[{chr(0x3400 + n)}-{chr(0x9000)}]" for n in range(20_000))
    yield "a class of 100,000 ranges", "root ::= [" + "".join(chr(0x20000 + 2 * n) for n in range(20_000)) + "]+"
    yield "an unknown rule after 20,000", "root ::= r0\n" + "\n".join(f'r{n} ::= "a" r{n + 1}' for n in range(20_000))
    yield "rules without an end", "root ::= r0\n" + "\n".join(f'r{n} ::= "a" r{(n + 1) % 3000}' for n in range(3000))
    yield (
        "GBNF of 2,000 alternatives that begin alike",
        "root ::= " + " | ".join(f'"a" [0-9]* "b{n}" [a-z]*' for n in range(2000)),
    )
    yield "GBNF of nested options", "root ::= " + '("a" (' * 2000 + '"b"' + ")?)*" * 2000
    heavy = r"/(?:(?!.{0,25}c)(?=.{0,20}a|b).)*/"
    yield "Lark terminals with look-aheads", f"start: (A | B)+\nA: {heavy}\nB: /[a-z]{{1,9}}(?=x)/"
    yield (
        "Lark terminals with priorities",
        "start: ("
        + " | ".join(f"T{n}" for n in range(150))
        + ")+\n"
        + "\n".join(f"T{n}.{n % 5}: /[a-{chr(98 + n % 25)}]{{1,{n % 20 + 1}}}[0-9]*/" for n in range(150)),
    )
    yield (
        "Lark terminals of distant letters",
        "start: (A | B | C)+\n" + "\n".join(f"{c.upper()}: /[a-z]*{c}[a-z]{{12}}/" for c in "abc"),
    )
    yield (
        "Lark rules of 300 templates",
        "start: "
        + " ".join(f"r{n}" for n in range(300))
        + "\n"
        + "\n".join(f'r{n}: (r{(n + 1) % 300} | "a{n}" | NAME)~0..3' for n in range(300))
        + '\nNAME: /[a-z]+/\n%ignore " "',
    )
    yield (
        "Lark terminals joined, 500",
        "start: A0+\n" + "\n".join(f'A{n}: A{n + 1} | "{n}" A{n + 1}?' for n in range(500)) + '\nA500: "z"',
    )
    yield (
        "Lark, many ignored",
        "start: (WORD | NUMBER)+\nWORD: /[a-z]+/\nNUMBER: /[0-9]+/\n"
        + "\n".join(f"%ignore /[{chr(0x100 + n)} ]+{n}/" for n in range(60)),
    )
    yield (
        "Lark terminals in any case",
        "start: ("
        + " | ".join(f"K{n}" for n in range(200))
        + ")+\n"
        + "\n".join(f'K{n}: "straße{n}"i' for n in range(200)),
    )


def structural(**form: Any) -> dict[str, Any]:
    """A description of tags with one format."""
    return {"type": "structural_tag", "format": form}


def triggered(triggers: list[str], tags: list[Any]) -> dict[str, Any]:
    """Tags that begin at triggers in free text."""
    return structural(type="triggered_tags", triggers=triggers, tags=tags)


def calls(marks: list[str], end: str, kind: str = "integer") -> dict[str, Any]:
    """Calls with one argument, each with a mark of its own, in the older form."""
    structures = [{"begin": mark, "schema": {"type": kind}, "end": end} for mark in marks]
    return {"structures": structures, "triggers": marks}


def tags() -> Iterator[tuple[str, Any]]:
    """Tags: very many, within each other, with bombs inside."""
    many = [
        {
            "begin": f"<f{n}>",
            "content": {"type": "json_schema", "json_schema": {"properties": {f"k{n}": {}}}},
            "end": "</f>",
        }
        for n in range(1000)
    ]
    yield "1,000 tags", triggered(["<f"], many)
    nested: dict[str, Any] = {"type": "const_string", "value": "x"}
    for depth in range(60):
        nested = {
            "type": "tag",
            "begin": f"<{depth}>",
            "content": {"type": "star", "content": nested},
            "end": f"</{depth}>",
        }
    yield "60 tags within each other", structural(**nested)
    bomb = {"type": "regex", "pattern": "(?:[ab]*a[ab]{30}|.{0,1000}x){0,1000}"}
    yield (
        "a heavy pattern in free text",
        {
            "structures": [{"begin": "<a>", "schema": {"type": "string", "pattern": bomb["pattern"]}, "end": "</a>"}],
            "triggers": ["<a>"],
        },
    )
    yield "5,000 triggers", calls([f"<t{n}>" for n in range(5000)], "</t>")
    excluded = [f"word {n}" for n in range(2000)]
    yield "free text without 2,000 words", structural(type="any_text", excludes=excluded)
    yield "10,000 triggers", calls([f"<t{n}>" for n in range(10_000)], "</t>")
    yield "1,500 triggers that begin alike", calls(["<" + "a" * n + ">" for n in range(1, 1500)], "</t>")
    long = "x" * 20_000
    yield "a trigger of 20,000 characters", calls([f"<{long}>"], f"</{long}>")
    schema = {"type": "object", "properties": {f"k{n}": {"type": "string"} for n in range(100)}}
    tools = [{"begin": f"<f{n}>", "schema": schema, "end": "</f>"} for n in range(500)]
    yield "500 tools of 100 arguments", {"structures": tools, "triggers": ["<f"]}
    yield from more_tags()


def more_tags() -> Iterator[tuple[str, Any]]:
    """Tags whose triggers begin alike, tags in tags, and other front ends inside of them."""
    triggers = [f"<tool name=very_long_common_prefix_{n:06d}>" for n in range(5000)]
    yield "5,000 triggers of 40 characters", {**calls(triggers, "</tool>"), "triggers": ["<tool"]}
    yield "5,000 triggers of 40 characters, each its own", calls(triggers, "</tool>")
    yield "400 triggers that overlap themselves", calls(["ab" * n + "c" for n in range(1, 400)], "!", "null")

    def tag(n: int, content: Any) -> Any:
        return {"type": "tag", "begin": f"<{n}>", "content": content, "end": f"</{n}>"}

    inner: Any = {"type": "any_text"}
    for n in range(40):
        inner = {"type": "triggered_tags", "triggers": [f"<{n}"], "tags": [tag(n, inner)]}
    yield "40 triggered tags within each other", structural(**inner)
    for _ in range(3000):
        inner = {"type": "sequence", "elements": [inner]}
    yield "3,000 sequences within each other", structural(**inner)
    doubled: Any = {"type": "const_string", "value": "x"}
    for n in range(16):
        doubled = {"type": "or", "elements": [doubled, tag(n, doubled)]}
    yield "16 doublings by or", structural(**doubled)
    heavy = {"type": "regex", "pattern": "(?:(?=.{0,20}a)(?=.{0,30}b)(?!.{0,25}c).)*"}
    yield "a look-ahead in a loop, tagged", structural(**tag(0, heavy))
    several = [tag(n, {"type": "regex", "pattern": f"(?=.*a.{{9}}){n}.*b.{{8}}"}) for n in range(100)]
    yield "100 heavy patterns in tags", triggered(["<"], several)
    grammar = "start: (A | B)+\nA: /[a-z]*a[a-z]{10}/\nB: /[a-z]*b[a-z]{9}/"
    grammars_in = [tag(n, {"type": "grammar", "grammar": f"{grammar}\nC{n}: /x/"}) for n in range(50)]
    yield "50 grammars in tags", triggered(["<"], grammars_in)
    schema = {
        "type": "object",
        "properties": {f"k{n}": {"type": "string", "pattern": f"a.{{{n}}}b"} for n in range(30)},
    }
    styled = [tag(n, {"type": "json_schema", "json_schema": schema, "style": "qwen_xml"}) for n in range(100)]
    yield "100 tools in XML", triggered(["<"], styled)
    plain = [tag(n, {"type": "json_schema", "json_schema": {"type": "integer"}}) for n in range(1000)]
    yield (
        "a separator between 1,000 tags",
        structural(type="tags_with_separator", tags=plain, separator=", ", at_least_one=True),
    )
    overlapping = ["ab" * n + "c" for n in range(1, 300)]
    yield "free text without 300 words that overlap", structural(type="any_text", excludes=overlapping)
