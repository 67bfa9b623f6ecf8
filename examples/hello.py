"""The shortest use of phloem: load the bundled model, ask it something, watch the answer come.

python examples/hello.py
"""

import phloem as ph

# The bundled model is tiny. It knows small talk, and how to answer questions about a short document.
SYSTEM = "You read documents. Answer briefly, or give JSON."


def main() -> None:
    engine = ph.Engine()  # or ph.Engine("path/to/a/checkpoint"), device="cuda", …
    greedy = ph.SamplingParams(max_tokens=32, temperature=0.0)

    # A whole answer at once.
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Who are you?"}]
    answer = engine.chat(messages, greedy)
    print(answer.text)

    # The next turn, piece by piece. The first turn's tokens are in the prefix cache: they are not computed again.
    messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": "What can you do?"}]
    prompt = engine.tokenizer.apply_chat_template(messages)
    for delta in engine.stream(prompt, greedy):
        print(delta.text, end="", flush=True)
        usage = delta.usage
    print(f"\n({usage.cached_tokens} of {usage.prompt_tokens} prompt tokens came from the cache)")


if __name__ == "__main__":
    main()
