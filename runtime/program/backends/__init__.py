"""Where programs run besides an engine in this process: one file for each kind, all with the protocol `run.Backend`.

::

    runtime_endpoint.py   phloem's own server: token ids, as on an engine      remote_tokenizer.py
    openai_api.py         chat completions and completions: text               characters.py
    anthropic_api.py      messages: text                                       characters.py
                          http_call.py: one request; remote_stream.py: what comes back, as an engine's deltas
"""
