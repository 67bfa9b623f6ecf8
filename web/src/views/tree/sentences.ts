// The tree in words: what a screen reader says of a node, of a request, and of the whole.

import type { Tree, TreeRequest } from "../../contract.ts";
import { count, counted, duration } from "../../format.ts";
import { childrenOf, type Layout } from "./layout.ts";

/** "1 child", "3 children". */
export function children(number: number): string {
  return number === 1 ? "1 child" : `${count(number)} children`;
}

/** What has the focus. `elapsed`: milliseconds since the tree was read. */
export function describePlace(layout: Layout, place: number, elapsed: number): string {
  const number = childrenOf(layout, place).length;
  if (place === 0) {
    const size = `${counted(layout.size - 1, "node")}, ${counted(layout.width[0]!, "block")}`;
    return `The whole cache: ${size}, ${counted(number, "first node")}.`;
  }
  const node = layout.node[place]!;
  const { columns, header } = layout.tree;
  const said = [
    `Node ${columns.id[node]}`,
    `level ${layout.depth[place]}`,
    counted(columns.num_blocks[node]!, "block"),
    counted(columns.num_tokens[node]!, "token"),
  ];
  if (number > 0) said.push(children(number), `${counted(layout.width[place]!, "block")} with all below`);
  said.push(`used ${duration(columns.age_ms[node]! + elapsed)} ago`, counted(columns.hits[node]!, "hit"));
  if (columns.leases[node]! > 0) said.push(counted(columns.leases[node]!, "lease"));
  if (columns.pinned[node]!) said.push("pinned");
  if (header.namespaces.length > 1) said.push(`namespace ${header.namespaces[columns.namespace[node]!] ?? ""}`);
  return `${said.join(", ")}.`;
}

/** One line on the whole tree, above it. */
export function describeTree({ header, columns }: Tree): string {
  let blocks = 0;
  for (let i = 0; i < header.num_nodes; i += 1) blocks += columns.num_blocks[i]!;
  const said = `${counted(header.num_nodes, "node")} · ${count(blocks)} of ${counted(header.num_blocks, "block")}`;
  const missing = header.num_nodes_left_out;
  return missing > 0 ? `${said} · ${counted(missing, "small node")} left out` : said;
}

/** How far a request has come. */
export function describeProgress(request: TreeRequest): string {
  if (request.phase === "waiting") return `waits with a prompt of ${counted(request.num_prompt_tokens, "token")}`;
  if (request.phase === "prefill") {
    return `${count(request.num_computed_tokens)} of ${counted(request.num_prompt_tokens, "prompt token")} computed`;
  }
  return `${counted(request.num_output_tokens, "token")} written after a prompt of ${count(request.num_prompt_tokens)}`;
}
