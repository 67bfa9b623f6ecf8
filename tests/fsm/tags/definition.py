"""Structural tags as they are defined, read aloud: where a text of a format can end. Knows no automata."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

Form = dict[str, Any]
Marks = tuple[str, ...]


def is_written(form: Form, text: str) -> bool:
    """Whether a text is one of a format."""
    return len(text) in Definition(text).after(form, 0)


class Definition:
    """The formats on one text. Methods give the places where what begins at `at` may end, with one of `ends`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[tuple[int, int, Marks], set[int]] = {}

    def after(self, form: Form, at: int, ends: Marks = ()) -> set[int]:
        """The ends of a format and of one of `ends`, which it stops at if it is free text."""
        key = id(form), at, ends
        if key not in self._known:
            self._known[key] = getattr(self, f"_{form['type']}")(form, at, ends)
        return self._known[key]

    def _ended(self, places: Iterable[int], ends: Marks) -> set[int]:
        if not ends:
            return set(places)
        return {place + len(end) for place in places for end in ends if self._text.startswith(end, place)}

    def _complete(self, begin: int, place: int, marks: Iterable[str]) -> set[str]:
        return {mark for mark in marks if place - len(mark) >= begin and self._text.endswith(mark, begin, place)}

    def _places(self, at: int) -> range:
        return range(at, len(self._text) + 1)

    def _const_string(self, form: Form, at: int, ends: Marks) -> set[int]:
        value = form["value"]
        return self._ended([at + len(value)] if self._text.startswith(value, at) else [], ends)

    def _regex(self, form: Form, at: int, ends: Marks) -> set[int]:
        pattern = re.compile(form["pattern"])
        return self._ended([end for end in self._places(at) if pattern.fullmatch(self._text, at, end)], ends)

    def _any_text(self, form: Form, at: int, ends: Marks) -> set[int]:
        excludes, longest, found = form.get("excludes", ()), form.get("max_chars", len(self._text)), set()
        for place in self._places(at):
            complete = self._complete(at, place, (*ends, *excludes))
            if complete:
                ended = [end for end in complete if end in ends]
                if complete <= set(ends) and min(place - at - len(end) for end in ended) <= longest:
                    return {place}
                return found
            if not ends and place - at <= longest:
                found.add(place)
        return found

    def _sequence(self, form: Form, at: int, ends: Marks) -> set[int]:
        places, last = {at}, len(form["elements"]) - 1
        for index, element in enumerate(form["elements"]):
            places = {end for place in places for end in self.after(element, place, ends if index == last else ())}
        return places

    def _or(self, form: Form, at: int, ends: Marks) -> set[int]:
        return {end for element in form["elements"] for end in self.after(element, at, ends)}

    def _repeat(self, form: Form, at: int, ends: Marks) -> set[int]:
        here, found, least = {at}, set[int](), form["min"]
        for turn in range(least + len(self._text) + 2 if form["max"] < 0 else form["max"] + 1):
            found |= here if turn >= least else set()
            here = {end for place in here for end in self.after(form["content"], place)}
        return self._ended(found, ends)

    def _tag(self, form: Form, at: int, ends: Marks) -> set[int]:
        if not self._text.startswith(form["begin"], at):
            return set()
        own = tuple(form["end"] if isinstance(form["end"], list) else [form["end"]])
        at += len(form["begin"])
        found = self.after(form["content"], at, tuple(end for end in own if end)) if any(own) else set()
        return self._ended(found | (self.after(form["content"], at) if "" in own else set()), ends)

    def _tags(self, form: Form, at: int) -> set[int]:
        return {end for tag in form["tags"] for end in self.after(tag, at)}

    def _tags_with_separator(self, form: Form, at: int, ends: Marks) -> set[int]:
        found, new = set() if form["at_least_one"] else {at}, self._tags(form, at)
        while new - found:
            found |= new
            if not form["stop_after_first"]:
                new = {end for place in self._ended(new, (form["separator"],)) for end in self._tags(form, place)}
        return self._ended(found, ends)

    def _triggered_tags(self, form: Form, at: int, ends: Marks) -> set[int]:
        def after_mark(trigger: str, begin: int) -> set[int]:
            return {end for tag in form["tags"] if tag["begin"].startswith(trigger) for end in self.after(tag, begin)}

        loops, triggers = not form["stop_after_first"], form["triggers"]
        if not form["at_least_one"]:
            return self._free({at}, form, triggers, ends, after_mark, loops=loops)
        first = self._tags(form, at)
        return self._free(first, form, triggers, ends, after_mark, loops=True) if loops else self._ended(first, ends)

    def _dispatch(self, form: Form, at: int, ends: Marks) -> set[int]:
        rules = dict(form["rules"])

        def after_mark(mark: str, begin: int) -> set[int]:
            return self.after(rules[mark], begin + len(mark))

        return self._free({at}, form, rules, ends, after_mark, loops=form["loop"])

    def _free(
        self,
        begins: Collection[int],
        form: Form,
        triggers: Collection[str],
        ends: Marks,
        after_mark: Callable[[str, int], set[int]],
        *,
        loops: bool,
    ) -> set[int]:
        """Free text up to the first mark that is complete; after a trigger, what that begins, and on from there."""
        others = {*ends, *form.get("excludes", ())}
        marks, found, pending = {*triggers, *others}, set[int](), list(begins)
        for begin in pending:  # grows
            for place in self._places(begin):
                complete = self._complete(begin, place, marks)
                if not complete:
                    found |= set() if ends else {place}
                    continue
                if complete <= set(ends):
                    found.add(place)
                elif complete.isdisjoint(others):
                    reached = {end for mark in complete for end in after_mark(mark, place - len(mark))}
                    if loops:
                        pending += sorted(reached - set(pending))
                    else:
                        found |= self._ended(reached, ends)
                break
        return found
