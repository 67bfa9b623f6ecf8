"""The live page at `/`: what the server is doing, to be seen in a browser.

    static_files      the page itself, built from `web/` and committed in `assets/`: no data, answered without a key
    router            its routes
    now               queue, rates, percentiles, pool, what other pools would bring
    tree_view         the prefix tree as columns of numbers, and one node of it
    recent_requests   the last requests: where their time went, how they were cached
    constraint_view   a constraint: compiled, explained, drawn

It is there only with `ServerSettings.page`. What it shows to callers without admin rights is what `/statistics` and
`/cache` show them, and of requests their counts and times; no text of a prompt, no key and no salt.
"""
