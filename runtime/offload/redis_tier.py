"""Blocks in a store that machines share: Redis, Valkey, and what else speaks their protocol.

::

    "phloem:2:" + digest of the key  ──►  header 256 | KV      as in a block's file (`block_file`)

What is in the store is there for every engine that has the same weights, settings and version, so prefill and decode
may be two machines. The store bounds itself: give it `maxmemory` and `maxmemory-policy allkeys-lru`, or a time to live.

Whatever goes wrong is a miss and costs no request anything but the wait for it: an answer is awaited for half a second,
and after a failure the store is left alone for a while (`circuit_breaker`). A value that is not what its key says is
removed and counted. A client that can write to the store is trusted with what the model reads: the checksum, whose
secret is the store's password, finds accidents and writers that do not know the password.

No call but `may_have` and `wants`, which ask nothing, is for the step's thread. Any thread may call.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import ConfigError
from .block_file import HEADER_BYTES, CorruptBlock, check_block, head_of
from .block_key import BlockKey
from .circuit_breaker import Breaker
from .tier import Changed, KnownDigests, Row, Tier, ignore_changes

PREFIX = b"phloem:2:"
DEADLINE = 0.5  # seconds for an answer
BATCH_BYTES = 8 << 20  # of values in one command
BATCH_KEYS = 512
MOST_KNOWN = 1 << 20  # digests that are remembered

logger = logging.getLogger("phloem.tiers")


class RedisTier(Tier):
    """The blocks of one model in a store.

    Args:
        client: of `connect`.
        secret: of the checksums.
        fingerprint: 32 bytes, of the model.
        block_bytes: bytes of a block's KV.
        ttl: seconds after which a block that was not used is forgotten by the store; None: it decides.
        changed: called with the blocks that this process has found or put there, and those it has missed since.
        clock: seconds, for pauses.
    """

    name = "shared"
    writes_through = True

    def __init__(
        self,
        client: Any,
        secret: bytes,
        fingerprint: bytes,
        block_bytes: int,
        *,
        ttl: float | None = None,
        changed: Changed = ignore_changes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._secret = secret
        self._fingerprint = fingerprint
        self._value_bytes = HEADER_BYTES + block_bytes
        self._batch = max(1, min(BATCH_KEYS, BATCH_BYTES // self._value_bytes))
        self._milliseconds = None if ttl is None else max(1, int(ttl * 1000))
        self._breaker = Breaker(clock)
        self._known = KnownDigests(changed, MOST_KNOWN)
        self._has_warned = False

    @property
    def num_bytes(self) -> int:
        """Of the blocks that this process has put there or found there, and not missed since."""
        return len(self._known) * self._value_bytes

    def wants(self, key: BlockKey) -> bool:
        return key.digest not in self._known and not self._breaker.is_open

    def may_have(self, key: BlockKey) -> bool:
        return not self._breaker.is_open

    def count(self, keys: Sequence[BlockKey]) -> int:
        number = 0
        for part in _parts(keys, BATCH_KEYS):
            found = self._ask([("EXISTS", _name(key)) for key in part])
            if found is None:
                break
            there = next((index for index, one in enumerate(found) if one != 1), len(part))
            self._known.learn(key.digest for key in part[:there])
            number += there
            if there < len(part):
                self._known.unlearn([part[there].digest])
                break
        return number

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        number = 0
        for part in _parts(keys, self._batch):
            values = self._ask([("GET", _name(key)) for key in part])
            if values is None:
                return number
            for index, (key, value) in enumerate(zip(part, values, strict=True)):
                if not self._take(key, value, rows[number]):
                    self._give_up(part[index:], value)
                    return number
                number += 1
        return number

    def put_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        new = 0
        options = ("NX",) if self._milliseconds is None else ("NX", "PX", self._milliseconds)
        for begin in range(0, len(keys), self._batch):
            part = keys[begin : begin + self._batch]
            answers = self._ask(
                [
                    ("SET", _name(key), head_of(self._secret, self._fingerprint, key, row) + row.tobytes(), *options)
                    for key, row in zip(part, rows[begin : begin + self._batch], strict=True)
                ]
            )
            if answers is None:
                break
            is_kept = [not isinstance(answer, Exception) for answer in answers]
            self._known.learn(key.digest for key, kept in zip(part, is_kept, strict=True) if kept)
            new += sum(answer is True for answer in answers)
        return new

    def touch(self, keys: Sequence[BlockKey]) -> None:
        if self._milliseconds is not None and keys:  # else reading has said it
            for part in _parts(keys, BATCH_KEYS):
                self._ask([("PEXPIRE", _name(key), self._milliseconds) for key in part])

    def close(self) -> None:
        self._client.close()

    def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """The answers to commands that are sent together, exceptions among them; None: there are none, now."""
        import redis

        if self._breaker.is_open:
            return None
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[Any] = pipe.execute(raise_on_error=False)
        except (redis.RedisError, OSError, ValueError) as error:
            self._fault(error)
            self._breaker.fail()
            return None
        failures = [answer for answer in answers if isinstance(answer, Exception)]
        if failures:  # it answers: out of memory, a value of another type, read only
            self._fault(failures[0])
            if len(failures) == len(answers) and not all(map(_is_of_another_type, failures)):
                self._breaker.fail()
                return answers
        self._breaker.succeed()
        return answers

    def _give_up(self, keys: Sequence[BlockKey], value: object) -> None:
        """The first of these blocks has not been found as it should be, but as `value`, so none of them is used.

        They are computed and written again. What is no block stands in the way of that, and where there is one there
        may be more (a new password makes all of them unreadable).
        """
        self._known.unlearn([key.digest for key in keys])
        if isinstance(value, bytes) or _is_of_another_type(value):
            self._ask([("DEL", *map(_name, keys))])

    def _take(self, key: BlockKey, value: object, out: Row) -> bool:
        """Copies a value to `out` if it is the key's block."""
        if not isinstance(value, bytes):
            return False  # gone, or of another type
        try:
            check_block(value, self._secret, self._fingerprint, key, len(out))
        except CorruptBlock as error:
            self._fault(error)
            return False
        out.data.cast("B")[:] = memoryview(value)[HEADER_BYTES:]
        return True

    def _fault(self, error: Exception) -> None:
        self.num_faults += 1
        if not self._has_warned:
            self._has_warned = True
            logger.warning("shared_cache: %s. KV is computed instead. Later faults are counted, not reported.", error)


def open_store(url: str) -> functools.partial[RedisTier]:
    """See `stores.Open`."""
    return functools.partial(RedisTier, *connect(url))


def connect(url: str) -> tuple[Any, bytes]:
    """A client of a store, and the secret of its checksums. A store that does not answer now may do so later.

    url: `redis://[user][:password]@host:port/number`, `rediss://…` (TLS), or `unix://[:password]@/path`.

    Raises:
        ConfigError: the URL is none or names no host, the extra is not installed, or the store refuses the password.
    """
    shown = without_password(url)
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ConfigError(f"shared_cache: needs redis ({error}); run: pip install 'phloem[shared]'") from error
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=DEADLINE, socket_connect_timeout=DEADLINE, retry=Retry(NoBackoff(), 0)
        )
        if not _names_a_place(client):
            raise ConfigError(
                f"shared_cache: {shown!r} names no host or socket; write for example redis://127.0.0.1:6379/0"
            )
        client.ping()
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise ConfigError(
            f"shared_cache: {shown}: {error}; write the password into the URL: redis://:PASSWORD@…"
        ) from error
    except redis.ResponseError as error:
        raise ConfigError(f"shared_cache: {shown}: {error}") from error
    except (redis.RedisError, OSError) as error:
        logger.warning("shared_cache: %s does not answer (%s); it is tried again while the engine runs", shown, error)
    except ValueError as error:
        raise ConfigError(f"shared_cache: {shown!r}: {error}; write for example redis://127.0.0.1:6379/0") from error
    password = client.connection_pool.connection_kwargs.get("password")
    return client, (password or "").encode()


def _names_a_place(client: Any) -> bool:
    """Whether the URL said where the store is: the client would take this machine's store otherwise."""
    settings = client.connection_pool.connection_kwargs
    return bool(settings.get("host") or settings.get("path"))


def without_password(url: str) -> str:
    """What of a URL may be shown."""
    scheme, sign, rest = url.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2]}"[:200]


def _name(key: BlockKey) -> bytes:
    return PREFIX + key.digest


def _is_of_another_type(answer: object) -> bool:
    """Whether a value is no text, but a list or the like: the store is sound."""
    return isinstance(answer, Exception) and str(answer).startswith("WRONGTYPE")


def _parts(keys: Sequence[BlockKey], size: int) -> Iterator[Sequence[BlockKey]]:
    for begin in range(0, len(keys), size):
        yield keys[begin : begin + size]
