"""How models write what they say: thoughts, content, calls of tools; which constraint holds in it, and how it is read.

::

    tokenizer, settings ──► OutputFormat ──► plan: calls as a constraint         ──► the engine
                               (table)       reading: the whole, and its reader  ──► events ──► one of the wire's shapes

    table             which formats there are
    events            what an output says, and the reader that formats build on
    output_format     what a format has to say of itself
    tagged            thoughts, then text with calls in it      thoughts, call_formats, call_plan, call_reader
    harmony           messages on channels
    arguments         a call's arguments, JSON or XML, as JSON
    parts             parts of structural tags
    reasoning_tokens  how many tokens are reasoning

Knows bodies of requests and the specs of constraints, no engine and no HTTP.
"""
