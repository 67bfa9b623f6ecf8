// The tree as a table: the chosen node and its children, widest first. The same by keyboard and by screen reader.

import { count, duration } from "../../format.ts";
import { childrenOf, idAt, type Layout } from "./layout.ts";
import { children } from "./sentences.ts";

const MAX_ROWS = 200;

interface Props {
  layout: Layout;
  place: number;
  takenAt: number;
  onChoose: (place: number) => void;
}

export function NodeTable({ layout, place, takenAt, onChoose }: Props) {
  const below = childrenOf(layout, place);
  const shown = below.sort((a, b) => layout.width[b]! - layout.width[a]!).slice(0, MAX_ROWS);
  const name = place === 0 ? "the whole cache" : `node ${idAt(layout, place)}`;
  return (
    <div class="node-table">
      {place > 0 && (
        <button type="button" onClick={() => onChoose(layout.parent[place]!)}>
          ↑ Up to {layout.parent[place] === 0 ? "the whole cache" : `node ${idAt(layout, layout.parent[place]!)}`}
        </button>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard has to reach it */}
      <section class="table-scroll" aria-label={`Children of ${name}`} tabIndex={0}>
        <table>
          <caption>
            {below.length === 0 ? `Nothing continues ${name}.` : `What continues ${name}: ${children(below.length)}`}
          </caption>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col" class="number">
                Blocks
              </th>
              <th scope="col" class="number">
                With all below
              </th>
              <th scope="col" class="number">
                Children
              </th>
              <th scope="col" class="number">
                Last used
              </th>
              <th scope="col" class="number">
                Hits
              </th>
              <th scope="col">Held</th>
              <th scope="col">Namespace</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((at) => (
              <Row key={idAt(layout, at)} layout={layout} place={at} takenAt={takenAt} onChoose={onChoose} />
            ))}
          </tbody>
        </table>
      </section>
      {below.length > MAX_ROWS && <p class="hint">The {MAX_ROWS} largest are shown.</p>}
    </div>
  );
}

function Row({ layout, place, takenAt, onChoose }: Props) {
  const { columns, header } = layout.tree;
  const node = layout.node[place]!;
  const leases = columns.leases[node]!;
  const held = [leases > 0 ? (leases === 1 ? "1 lease" : `${leases} leases`) : "", columns.pinned[node]! ? "pin" : ""];
  return (
    <tr>
      <th scope="row">
        <button type="button" class="quiet" onClick={() => onChoose(place)}>
          {columns.id[node]}
        </button>
      </th>
      <td class="number">{count(columns.num_blocks[node]!)}</td>
      <td class="number">{count(layout.width[place]!)}</td>
      <td class="number">{count(childrenOf(layout, place).length)}</td>
      <td class="number">{duration(columns.age_ms[node]! + performance.now() - takenAt)} ago</td>
      <td class="number">{count(columns.hits[node]!)}</td>
      <td>{held.filter(Boolean).join(", ") || "–"}</td>
      <td>{header.namespaces[columns.namespace[node]!]}</td>
    </tr>
  );
}
