// The client of the server's routes: the key, errors with their remedy, streams, and the binary tree.
// Addresses are relative to the page, so that it also works under a path of a proxy.

import {
  type About,
  type ConstraintAnswer,
  type ConstraintQuestion,
  type Now,
  type RequestRow,
  TREE_COLUMNS,
  type Tree,
  type TreeHeader,
  type TreeNode,
} from "./contract.ts";
import { keep, kept } from "./storage.ts";
import { Store } from "./store.ts";

const KEY = "phloem.key";

/** What a reader is told of an error. `pointer`: the place in a schema, as JSON Pointer. */
export interface Problem {
  status: number;
  message: string;
  remedy: string;
  param: string | null;
  pointer: string | null;
  code: string | null;
}

/** An error as the server told it, or as the connection failed; `remedy` is what the reader can do. */
export class ApiError extends Error implements Problem {
  constructor(
    readonly status: number,
    message: string,
    readonly remedy: string,
    readonly param: string | null = null,
    readonly pointer: string | null = null,
    readonly code: string | null = null,
    /** What stands at the place of the error, as the server has it. */
    readonly part: string | null = null,
    /** The message without its place and its remedy. */
    readonly reason: string | null = null,
  ) {
    super(message);
  }
}

function remedyOf(status: number, code: string | null, retryAfter: string | null): string {
  const wait = retryAfter ? ` Try again in ${retryAfter} s.` : " Try again in a moment.";
  switch (true) {
    case status === 0:
      return "Check that the server runs and that this page can reach it.";
    case status === 401:
      return "Enter the server's API key.";
    case code === "context_length_exceeded":
      return ""; // the message says it
    case code === "constraint_too_large":
      return "Simplify the schema or pattern, or start the server with larger limits.";
    case status === 400:
      return "Change what the message names, then send again.";
    case status === 404 && code === "model_not_found":
      return "Choose a model that the server has.";
    case status === 404:
      return "Load the page again: what it asked for is gone, or not on this server.";
    case status === 413:
      return "Attach less, or start the server with a larger --max-body-bytes.";
    case status === 429:
      return `The server has too many requests waiting.${wait}`;
    case status === 503:
      return `The server is starting or stopping.${wait}`;
    default:
      return "Try again. If it happens again, the server's log has the cause.";
  }
}

/** The error in a body `{"error": {...}}`, which answers and frames of streams have. */
export function errorOfBody(status: number, body: unknown, retryAfter: string | null = null): ApiError {
  const error = (body as { error?: Record<string, unknown> } | null)?.error ?? {};
  const text = (name: string) => (typeof error[name] === "string" ? (error[name] as string) : null);
  const code = text("code");
  const said = status === 401 ? "This server wants an API key." : text("message"); // its own is for programs
  const message = said ?? `The server answered with status ${status}.`;
  const remedy = text("remedy") ?? remedyOf(status, code, retryAfter);
  return new ApiError(status, message, remedy, text("param"), text("pointer"), code, text("part"), text("reason"));
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Any exception as an `ApiError`. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) {
    return error;
  }
  return new ApiError(0, "The connection to the server was lost.", remedyOf(0, null, null));
}

/** As a plain object, which can be stored. */
export function problemOf({ status, message, remedy, param, pointer, code }: ApiError): Problem {
  return { status, message, remedy, param, pointer, code };
}

export class Api {
  /** True while the server wants a key that the page does not have, or has wrong. */
  readonly wantsKey = new Store(false);

  get hasKey(): boolean {
    return kept("session", KEY) !== null;
  }

  setKey(key: string): void {
    keep("session", KEY, key || null);
    this.wantsKey.set(false);
  }

  about(signal?: AbortSignal): Promise<About> {
    return this.json("page/about", signal);
  }

  /** This moment; with `?what_if` the server also finds out now and then what other pools would bring. */
  now(signal?: AbortSignal): Promise<Now> {
    return this.json("page/now?what_if", signal);
  }

  async requests(signal?: AbortSignal): Promise<RequestRow[]> {
    const { requests } = await this.json<{ requests: RequestRow[] }>("page/requests", signal);
    return requests;
  }

  /** The tree, or null if it is still that of `generation`. */
  async tree(generation: number | string | null, signal?: AbortSignal): Promise<Tree | null> {
    const query = generation === null ? "" : `?generation=${encodeURIComponent(generation)}`;
    const response = await this.send(`page/tree${query}`, { signal: signal ?? null });
    if (response.status === 204 || response.status === 304) {
      return null;
    }
    return treeOf(await response.arrayBuffer());
  }

  /** What one node is; status 404 when it is gone. */
  treeNode(id: number, signal?: AbortSignal): Promise<TreeNode> {
    return this.json(`page/tree/${id}`, signal);
  }

  constraint(question: ConstraintQuestion, signal?: AbortSignal): Promise<ConstraintAnswer> {
    return this.json("page/constraint", signal, question);
  }

  /** The bodies of a stream's frames. Throws an `ApiError` for an error frame and for a stream that just ends. */
  async *stream(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<unknown> {
    const response = await this.send(path, posted(body, signal));
    if (!response.body) {
      throw asApiError(null);
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
      while (true) {
        const { value, done } = await reader.read();
        if (done) {
          throw asApiError(null);
        }
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          if (line === "data: [DONE]") {
            return;
          }
          if (line.startsWith("data: ")) {
            yield frameOf(line.slice("data: ".length));
          }
        }
      }
    } finally {
      reader.cancel().catch(() => undefined);
    }
  }

  async json<T>(path: string, signal?: AbortSignal, body?: unknown): Promise<T> {
    const init = body === undefined ? { signal: signal ?? null } : posted(body, signal);
    const response = await this.send(path, init);
    return (await response.json()) as T;
  }

  private async send(path: string, init: RequestInit): Promise<Response> {
    const key = kept("session", KEY);
    const headers = new Headers(init.headers);
    if (key) {
      headers.set("Authorization", `Bearer ${key}`);
    }
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers });
    } catch (error) {
      throw isAborted(error) ? error : asApiError(error);
    }
    if (response.status === 401) {
      this.wantsKey.set(true);
    }
    if (!response.ok && response.status !== 304) {
      const body: unknown = await response.json().catch(() => null);
      throw errorOfBody(response.status, body, response.headers.get("retry-after"));
    }
    return response;
  }
}

function posted(body: unknown, signal?: AbortSignal): RequestInit {
  return {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: signal ?? null,
  };
}

function frameOf(data: string): unknown {
  const body = JSON.parse(data) as { error?: unknown };
  if (body.error) {
    throw errorOfBody(500, body);
  }
  return body;
}

/** Reads the tree's bytes: length of the header, the header, int32 columns. */
export function treeOf(bytes: ArrayBuffer): Tree {
  const length = new DataView(bytes).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as TreeHeader;
  const columns = Object.fromEntries(
    header.columns.map((name, index) => {
      const start = 4 + length + 4 * index * header.num_nodes;
      return [name, new Int32Array(bytes, start, header.num_nodes)];
    }),
  ) as Partial<Record<string, Int32Array>>;
  const missing = TREE_COLUMNS.filter((name) => !columns[name]);
  if (missing.length > 0) {
    const remedy = "Load the page again, since the server may have been started in another version.";
    throw new ApiError(0, `The server's tree has no column ${missing.join(", ")}.`, remedy);
  }
  return { header, columns: columns as Tree["columns"] };
}
