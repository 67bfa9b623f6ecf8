"""A chat backend: one system prompt, many users, the official `openai` client.

    pip install openai && python examples/shared_prompt_chat.py

Usually the server is its own process (`phloem serve`); here it runs on a thread, so that one file shows both sides.
The system prompt is computed once, for the first user; `cached_tokens` shows it.
"""

import threading
import time

import openai
import uvicorn

import phloem as ph
from phloem.runtime.server import create_app

SHOP = (
    "You answer for the shop Rosmund. The shop is in Nevbel. We open at 8 and close at 19. Nina Linsen runs the shop."
    " The lamp costs 45 euros. The chair costs 120 euros. The kettle costs 38 euros."
)
USERS = {
    "Ann": ["Hello!", "What does the lamp cost?"],
    "Ben": ["When do you open?"],
    "Cem": ["How much is the kettle?", "Thanks!"],
}


def main() -> None:
    engine = ph.AsyncEngine(ph.Engine())
    server = uvicorn.Server(uvicorn.Config(create_app(engine), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none needed")
    for user, questions in USERS.items():
        messages = [{"role": "system", "content": SHOP}]
        for question in questions:
            messages.append({"role": "user", "content": question})
            reply = client.chat.completions.create(model="nano", messages=messages, temperature=0, max_tokens=32)
            answer, usage = reply.choices[0].message.content, reply.usage
            messages.append({"role": "assistant", "content": answer})
            cached = usage.prompt_tokens_details.cached_tokens
            print(f"{user}: {question}\n     {answer}  (cached: {cached} of {usage.prompt_tokens} prompt tokens)")

    client.close()
    server.should_exit = True
    thread.join()
    engine.stop()


if __name__ == "__main__":
    main()
