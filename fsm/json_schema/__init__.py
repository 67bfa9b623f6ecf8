"""JSON Schema to a grammar that writes exactly the valid instances, or a refusal with the place.

::

    text --resolve--> sites --reading--> parts --branching--> branches --objects, arrays, strings, numbers--> Grammar
                            `--plain objects and arrays, nearly all---------------^

Drafts 3 to 2020-12 by `$schema` (none: all keywords of all of them). What is written:

- keys in the order of the schema, then keys it does not name (or all of them in any order, as asked for); no
  object has a key twice;
- white space as asked for: "compact", "spaced" or "flexible" (bounded);
- strings as json.dumps(ensure_ascii=False) spells them; integers without fraction or exponent.

Nothing is weakened: what cannot be enforced is an `UnsupportedSchema` at its JSON pointer, what has no valid
instance an `EmptyLanguage`, what would grow beyond the bounds a `ConstraintTooLarge`. Unknown keywords and unknown
formats demand nothing; they are reported in `annotations`.
"""

from __future__ import annotations

from ...errors import InvalidSchema
from ..any_json import ExtraKeys, KeyOrder, Whitespace
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import Grammar
from ..resources import NO_RESOURCES, Resources
from .compile import SchemaCompiler
from .contradiction import place_of_contradiction
from .layout import layout_of
from .sites import Annotation, Sites
from .texts import shown
from .xml_arguments import Spell
from .xml_marks import LineBreaks, XmlMarks, XmlStyle, xml_marks

__all__ = [
    "Annotation",
    "ExtraKeys",
    "KeyOrder",
    "LineBreaks",
    "Spell",
    "Whitespace",
    "XmlMarks",
    "XmlStyle",
    "arguments_to_grammar",
    "place_of_contradiction",
    "raw_keys",
    "schema_to_grammar",
    "xml_marks",
]


def schema_to_grammar(
    schema: object,
    *,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
    annotations: list[Annotation] | None = None,
    places: dict[str, str] | None = None,
    compile_time: CompileTime | None = None,
    prefix: str = "",
    resources: Resources = NO_RESOURCES,
) -> Grammar:
    """The grammar of all JSON texts that are valid under a schema, in the documented spelling.

    Args:
        schema: a dict or a boolean, as json.loads gives it. It must not change while this runs.
        whitespace: how the text is laid out.
        key_order: "schema": as described above; "any": as a validator reads it.
        extra_keys: "schema": keys that are not named are allowed unless the schema forbids them; "never": only where
            the schema says what they may be, or names no key at all (`objects.is_closed`).
        annotations: receives the keywords that are there and not enforced, because they demand nothing.
        places: receives, by the name of each rule made from a schema, that schema's JSON pointer.
        compile_time: how long this may take; None: without end.
        prefix: begins the names of all rules but those that every grammar of this layout has, which are the same.
        resources: the documents it may refer to, by URI.

    Raises:
        InvalidSchema: it is not a JSON Schema; `pointer` says where.
        UnsupportedSchema: a keyword cannot be enforced exactly; `pointer` says which.
        EmptyLanguage: no value at all is valid.
        ConstraintTooLarge: it passes a bound on depth, cases, states or time.
    """
    compiler = _compiler(schema, whitespace, key_order, extra_keys, annotations, compile_time, prefix, resources)
    grammar = compiler.grammar()
    if places is not None:
        places.update(compiler.places())
    return grammar


def arguments_to_grammar(
    schema: object,
    marks: XmlMarks,
    *,
    spell: Spell = str.encode,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
    compile_time: CompileTime | None = None,
    prefix: str = "",
    resources: Resources = NO_RESOURCES,
) -> Grammar:
    """The grammar of all objects that are valid under a schema, the outermost one as XML (`xml_arguments`).

    Args:
        spell: spells a mark; there may be special tokens in it.
        whitespace, key_order, extra_keys, compile_time, prefix, resources: as for `schema_to_grammar`; the first and
            the third are meant for what stands inside of the outermost object.

    Raises:
        ConstraintError: as `schema_to_grammar`; UnsupportedSchema also for what cannot be written as XML.
    """
    compiler = _compiler(schema, whitespace, key_order, extra_keys, None, compile_time, prefix, resources)
    return compiler.xml_arguments(marks, spell)


def raw_keys(schema: object, marks: XmlMarks, compile_time: CompileTime | None = None) -> frozenset[str]:
    """The keys whose values are text without quotes where a schema's objects are written as XML.

    Raises:
        ConstraintError: as `arguments_to_grammar`.
    """
    return _compiler(schema, "compact", "schema", "schema", None, compile_time).raw_keys(marks)


def _compiler(
    schema: object,
    whitespace: Whitespace,
    key_order: KeyOrder,
    extra_keys: ExtraKeys,
    annotations: list[Annotation] | None,
    compile_time: CompileTime | None,
    prefix: str = "",
    resources: Resources = NO_RESOURCES,
) -> SchemaCompiler:
    if type(schema) is not dict and type(schema) is not bool:
        raise InvalidSchema(f"a schema must be an object or a boolean, not {shown(schema)}")
    sites = Sites(schema, annotations, resources=resources, time=compile_time or NO_LIMIT)
    return SchemaCompiler(sites, layout_of(whitespace), key_order, extra_keys, prefix=prefix)
