// Random trees for tests: the binary form of the server's answer, made from a seed.

import { TREE_COLUMNS, type TreeHeader, type TreeRequest } from "../../contract.ts";

/** Numbers in [0, 1) from a seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** `numNodes` nodes below a few roots, ids ascending but with gaps. */
export function randomTree(seed: number, numNodes: number, requests: TreeRequest[] = []): ArrayBuffer {
  const random = randomFrom(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  const rows: number[][] = TREE_COLUMNS.map(() => []);
  const ids: number[] = [];
  for (let i = 0; i < numNodes; i += 1) {
    const id = (ids.at(-1) ?? 0) + 1 + below(4);
    const parent = i < 3 ? -1 : (ids[below(i)] ?? -1);
    ids.push(id);
    const blocks = 1 + below(9);
    const values = [id, parent, blocks * 16, blocks, below(5_000_000), below(80), below(3), +(below(9) === 0), 0, -1];
    values.forEach((value, column) => {
      rows[column]?.push(value);
    });
  }
  return encode(
    {
      generation: seed,
      num_nodes: numNodes,
      columns: [...TREE_COLUMNS],
      namespaces: ["default", "salt 1", "adapter sql"],
      requests,
      num_blocks: 100_000,
      block_size: 16,
      num_nodes_left_out: 0,
    },
    rows,
  );
}

export function encode(header: TreeHeader, rows: number[][]): ArrayBuffer {
  let text = JSON.stringify(header);
  text = text.padEnd(text.length + ((4 - (text.length % 4)) % 4));
  const head = new TextEncoder().encode(text);
  const bytes = new ArrayBuffer(4 + head.length + 4 * header.num_nodes * rows.length);
  new DataView(bytes).setUint32(0, head.length, true);
  new Uint8Array(bytes).set(head, 4);
  rows.forEach((row, column) => {
    if (row.length !== header.num_nodes) {
      throw new RangeError(`column ${header.columns[column]} has ${row.length} values`);
    }
    new Int32Array(bytes, 4 + head.length + 4 * header.num_nodes * column, header.num_nodes).set(row);
  });
  return bytes;
}
