"""A generation program: one document, several questions side by side, then a decision over the answers.

    python examples/fork_and_join.py

`fork` goes on from the same tokens in several branches; the engine computes the common prefix once and runs the
branches in one batch. `join` brings their variables together as lists.
"""

import phloem as ph

SYSTEM = "You read documents. Answer briefly, or give JSON."
DOCUMENT = "The Karbel Fair is on 2031-05-17. It takes place at Silmidra Hall in Nickplack. There are 850 seats."
QUESTIONS = ["What is it called?", "When is it?", "Which city?", "How many seats?"]


@ph.function
def interview(s, document, questions):
    s += ph.system(SYSTEM)
    s += ph.user_begin() + document + "\n\n"  # the message stays open: each branch ends it in its own way

    branches = s.fork(len(questions))
    for branch, question in zip(branches, questions, strict=True):
        branch += question + ph.user_end()
        branch += ph.assistant(ph.gen("answer", max_tokens=24))  # does not wait: all branches run together
    branches.join()  # now s["answer"] is a list

    # The parent goes on from where the branches left it. `select` picks the likeliest of the given texts.
    s += "Where do we meet?" + ph.user_end()
    s += ph.assistant(ph.select("venue", ["Silmidra Hall", "Nickplack Hall", "Karbel Hall"]))


def main() -> None:
    engine = ph.Engine()
    state = interview.run(DOCUMENT, QUESTIONS, temperature=0.0, backend=engine)
    for question, answer in zip(QUESTIONS, state["answer"], strict=True):
        print(f"{question:20} {answer}")
    print(f"{'Where do we meet?':20} {state['venue']}")

    infos = state.get_meta_info("answer")
    print(f"(tokens from the cache, by branch: {[info['cached_tokens'] for info in infos]})")


if __name__ == "__main__":
    main()
