// The tree view: the prefix tree as an icicle or as a table, the requests that move through it, and one node in detail.

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Fault } from "../../parts/fault.tsx";
import { usePolling } from "../../polling.ts";
import type { ViewProps } from "../../view.ts";
import { Icicle } from "./icicle.tsx";
import { idAt, type Layout, layOut, pathTo } from "./layout.ts";
import { LegendBar } from "./legend.tsx";
import { NodePanel } from "./node_panel.tsx";
import { NodeTable } from "./node_table.tsx";
import type { ColourBy } from "./palette.ts";
import { PathBar } from "./path_bar.tsx";
import { RequestList } from "./request_list.tsx";
import { describePlace, describeTree } from "./sentences.ts";
import "../../parts/data.css";
import "./tree.css";

const EVERY = 1000; // milliseconds between two looks
const EVERY_IF_LARGE = 2500;
const LARGE = 5000; // nodes

type Form = "icicle" | "table";

export function TreeView({ api, about, announce }: ViewProps) {
  const { layout, takenAt, error } = useLayout(api);
  if (!layout) {
    return error ? <Fault error={error} /> : <p class="empty">The tree is being read …</p>;
  }
  if (layout.size === 1) {
    return <Empty model={about.model} hasChat={about.has_chat} requests={layout.tree.header.requests.length} />;
  }
  return (
    <Tree api={api} about={about} announce={announce} layout={layout} takenAt={takenAt}>
      {error && <Fault error={error} />}
    </Tree>
  );
}

interface TreeProps extends Pick<ViewProps, "api" | "about" | "announce"> {
  layout: Layout;
  /** When the server was asked, on the page's clock. */
  takenAt: number;
  children: ComponentChildren;
}

function Tree({ api, about, announce, layout, takenAt, children }: TreeProps) {
  const [form, setForm] = useState<Form>("icicle");
  const [colourBy, setColourBy] = useState<ColourBy>("age");
  const [requestKey, setRequestKey] = useState("");
  const [wanted, setWanted] = useState<{ place: number } | null>(null);
  const { chosen, choose } = useChosen(layout, takenAt, announce);
  const enter = (place: number) => {
    choose(place);
    setWanted({ place });
  };
  const show = (shown: Form) => {
    setForm(shown);
    setWanted(null); // an icicle that comes back does not go there again
  };
  const { requests, namespaces } = layout.tree.header;
  const icicle = { layout, takenAt, colourBy, chosen, wanted, requestKey, onChoose: choose };
  return (
    <div class="tree-page">
      <div class="tree-head">
        <h1>Prefix tree</h1>
        <p class="hint">{describeTree(layout.tree)}</p>
        <Choice<Form> legend="Shown as" value={form} onChoose={show} options={FORMS} />
        <Choice<ColourBy> legend="Colour" value={colourBy} onChoose={setColourBy} options={COLOURS} />
      </div>
      {children}
      <PathBar layout={layout} place={chosen} onEnter={enter} />
      <div class="tree-main">
        <section class="tree-stage" aria-label="Nodes">
          {form === "icicle" ? (
            <Icicle {...icicle} />
          ) : (
            <NodeTable layout={layout} place={chosen} takenAt={takenAt} onChoose={choose} />
          )}
          {form === "icicle" && <LegendBar colourBy={colourBy} namespaces={namespaces} showsText={about.admin} />}
        </section>
        <aside class="tree-side">
          <NodePanel
            api={api}
            about={about}
            layout={layout}
            place={chosen}
            onChoose={enter}
            onRequest={setRequestKey}
          />
          <RequestList requests={requests} chosen={requestKey} onChoose={setRequestKey} />
        </aside>
      </div>
    </div>
  );
}

/** The chosen place: while its node is gone, that of the nearest of its ancestors that is left. */
function useChosen(layout: Layout, takenAt: number, announce: ViewProps["announce"]) {
  const [path, setPath] = useState<number[]>([]); // ids down to the chosen node
  const chosen = deepest(layout, path);
  const choose = useCallback((place: number) => setPath(pathTo(layout, place).map((at) => idAt(layout, at))), [layout]);
  const chosenId = idAt(layout, chosen);
  // said once for each node, not for each new tree
  useEffect(() => {
    if (path.length > 0) {
      announce(describePlace(layout, chosen, performance.now() - takenAt));
    }
  }, [chosenId]);
  return { chosen, choose };
}

const FORMS: [Form, string][] = [
  ["icicle", "Icicle"],
  ["table", "Table"],
];
const COLOURS: [ColourBy, string][] = [
  ["age", "Age"],
  ["hits", "Hits"],
  ["namespace", "Namespace"],
];

/** The place of the last of these nodes that is left. */
function deepest(layout: Layout, ids: number[]): number {
  for (let i = ids.length - 1; i >= 0; i -= 1) {
    const place = layout.placeOf.get(ids[i] ?? -1);
    if (place !== undefined) {
      return place;
    }
  }
  return 0;
}

/** The tree's layout, made anew only when the tree has changed. */
function useLayout(api: ViewProps["api"]) {
  const [shown, setShown] = useState<{ layout: Layout | null; takenAt: number }>({ layout: null, takenAt: 0 });
  const generation = useRef<number | string | null>(null);
  const ask = useCallback(
    async (signal: AbortSignal) => {
      const tree = await api.tree(generation.current, signal);
      if (tree) {
        generation.current = tree.header.generation;
        setShown({ layout: layOut(tree), takenAt: performance.now() });
      }
      return tree;
    },
    [api],
  );
  const { error } = usePolling(ask, (shown.layout?.size ?? 0) > LARGE ? EVERY_IF_LARGE : EVERY);
  return { ...shown, error };
}

interface ChoiceProps<T extends string> {
  legend: string;
  value: T;
  options: [T, string][];
  onChoose: (value: T) => void;
}

function Choice<T extends string>({ legend, value, options, onChoose }: ChoiceProps<T>) {
  return (
    <fieldset class="switch">
      <legend>{legend}</legend>
      {options.map(([option, word]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChoose(option)}>
          {word}
        </button>
      ))}
    </fieldset>
  );
}

function Empty({ model, hasChat, requests }: { model: string; hasChat: boolean; requests: number }) {
  return (
    <div class="empty tree-empty">
      <h1>The tree is empty</h1>
      <p>
        {requests > 0
          ? "A request is running; its prompt appears here as soon as its first block is computed."
          : `No prompt has been computed since the cache was last cleared. Send one to ${model}, and what it shares with later prompts grows here.`}
      </p>
      <p>
        {hasChat ? (
          <>
            Write a message under <a href="#chat">Chat</a>
          </>
        ) : (
          "Send a request to /v1/completions"
        )}
        , then come back to this view. Prompts shorter than one block are not kept.
      </p>
    </div>
  );
}
