// What the server says on the page's routes, as types. Durations carry their unit in the name.

export interface About {
  model: string;
  models: string[];
  version: string;
  admin: boolean;
  has_text: boolean;
  has_chat: boolean;
  thinks: boolean;
  max_model_len: number;
  vocab_size: number;
  block_size: number;
  num_blocks: number;
  /** Processes that compute the model together. */
  ranks: number;
  /** Its name; "mtp": the model's own layer. */
  draft_model: string | null;
  layer_kinds?: string[];
}

export interface Percentiles {
  p50: number | null;
  p95: number | null;
  p99: number | null;
  n: number;
}

export interface Now {
  time: number;
  queue: number;
  running: number;
  seats: number;
  step_ms: { p50: number | null; p99: number | null };
  /** Unknown at the first of a row of polls. */
  tokens_per_second: { output: number | null; prompt: number | null };
  ttft_ms: Percentiles;
  inter_token_ms: Percentiles;
  pool: { num_blocks: number; free: number; leased: number; cached: number; pinned: number };
  tiers: { name: string; bytes: number }[];
  preemptions: number;
  hit_rate: number;
  evictions: number;
  prompt_tokens: number;
  cached_tokens: number;
  generated_tokens: number;
  jumped_tokens: number;
  /** By what drafted, of what has drafted anything. */
  drafts: { by: string; drafted: number; right: number }[];
  draft_model_rests: boolean;
  what_if: {
    seconds_ago: number;
    sizes: { num_blocks: number; hit_rate: number }[];
    policies: { name: string; hit_rate: number }[];
  } | null;
  misses: { seconds_ago: number; request_id: string; sentence: string; reason: string }[];
}

export const TREE_COLUMNS = [
  "id",
  "parent",
  "num_tokens",
  "num_blocks",
  "age_ms",
  "hits",
  "namespace",
  "leases",
  "pinned",
  "rank",
] as const;

export type TreeColumn = (typeof TREE_COLUMNS)[number];

export interface TreeRequest {
  request_id: string;
  index: number;
  node: number;
  phase: "waiting" | "prefill" | "decode";
  num_tokens: number;
  num_prompt_tokens: number;
  num_computed_tokens: number;
  num_output_tokens: number;
}

export interface TreeHeader {
  generation: number | string;
  num_nodes: number;
  columns: TreeColumn[];
  namespaces: string[];
  requests: TreeRequest[];
  num_blocks: number;
  block_size: number;
  num_nodes_left_out: number;
}

/** A snapshot of the prefix tree: columns of `num_nodes` values, parents before their children. */
export interface Tree {
  header: TreeHeader;
  columns: Record<TreeColumn, Int32Array>;
}

export interface TreeNode {
  id: number;
  num_tokens: number;
  num_blocks: number;
  age_seconds: number;
  hits: number;
  namespace: string;
  children: number;
  held_by: string[];
  pinned_seconds: number | null;
  rank: number | null;
  sentence: string;
  text: string | null;
}

export interface CacheNote {
  reason: string;
  sentence: string;
}

export interface RequestRow {
  request_id: string;
  route: string;
  model: string;
  status: number | null;
  ended_seconds_ago: number | null;
  seconds: number | null;
  compile_ms: number | null;
  queue_ms: number | null;
  prefill_ms: number | null;
  decode_ms: number | null;
  began_at: number;
  time: number;
  prompt_tokens: number | null;
  cached_tokens: number | null;
  loaded_tokens: number | null;
  completion_tokens: number | null;
  jumped_tokens: number | null;
  drafted_tokens: number | null;
  preemptions: number | null;
  constraint: string | null;
  finish_reason: string | null;
  error: string | null;
  cache: CacheNote | null;
  is_running: boolean;
}

export type ConstraintKind = "json_schema" | "regex" | "grammar" | "choice" | "structural_tag";

export interface ConstraintQuestion {
  kind: ConstraintKind;
  source: unknown;
  text: string | null;
  key_order?: "schema" | "any";
  extra_keys?: "schema" | "never";
  whitespace?: "compact" | "spaced" | "flexible";
}

export interface ConstraintAnswer {
  ok: true;
  enforced: { pointer: string; keyword: string; how: string }[];
  forced_text: string;
  shortest: string;
  shortest_tokens: number;
  num_states: number | null;
  svg: string | null;
  compile_ms: number;
  first_mask_us: number;
  mask_us: number;
  steps: { valid_up_to: number; complete: boolean; sentence: string } | null;
  next: { count: number; tokens: { id: number; text: string }[] };
}
