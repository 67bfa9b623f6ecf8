// Markdown as elements. Text stays text: nothing of it becomes HTML, and no image is loaded.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { type Block, blocksOf } from "./markdown_blocks.ts";
import type { Inline } from "./markdown_inline.ts";
import "./markdown.css";

export function Markdown({ text }: { text: string }) {
  return useMemo(() => <div class="markdown">{drawBlocks(blocksOf(text))}</div>, [text]);
}

/** Headings are ranked under the page's own, without gaps, whatever level a model begins with. */
function drawBlocks(blocks: Block[]): ComponentChildren[] {
  let rank = 1;
  return blocks.map((block, key) => {
    if (block.kind === "heading") {
      rank = Math.min(block.level + 1, rank + 1, 6);
      const Heading = `h${rank}` as "h2";
      return (
        <Heading key={key} class={`level-${block.level}`}>
          {block.children.map(drawInline)}
        </Heading>
      );
    }
    return drawBlock(block, key);
  });
}

function drawBlock(block: Block, key: number): ComponentChildren {
  switch (block.kind) {
    case "paragraph":
      return <p key={key}>{block.children.map(drawInline)}</p>;
    case "heading": // in a quote or a list
      return (
        <p key={key}>
          <strong>{block.children.map(drawInline)}</strong>
        </p>
      );
    case "code":
      return (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by the keyboard
        <pre key={key} tabIndex={0} data-language={block.language}>
          <code>{block.text}</code>
        </pre>
      );
    case "quote":
      return <blockquote key={key}>{block.children.map(drawBlock)}</blockquote>;
    case "rule":
      return <hr key={key} />;
    case "list": {
      const items = block.items.map((item, place) => <li key={`${place}`}>{drawItem(item)}</li>);
      return block.start === null ? (
        <ul key={key}>{items}</ul>
      ) : (
        <ol key={key} start={block.start}>
          {items}
        </ol>
      );
    }
    case "table":
      return drawTable(block.head, block.rows, key);
  }
}

/** A single paragraph in an item has no gaps. */
function drawItem(item: Block[]): ComponentChildren {
  const [first, ...others] = item;
  return first?.kind === "paragraph"
    ? [...first.children.map(drawInline), ...others.map((block, place) => drawBlock(block, place + 1000))]
    : item.map(drawBlock);
}

function drawTable(head: Inline[][], rows: Inline[][][], key: number): ComponentChildren {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be reached by the keyboard
    <div key={key} class="table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {head.map((cell, place) => (
              <th key={`${place}`}>{cell.map(drawInline)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, line) => (
            <tr key={`${line}`}>
              {row.map((cell, place) => (
                <td key={`${place}`}>{cell.map(drawInline)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function drawInline(inline: Inline, key: number): ComponentChildren {
  switch (inline.kind) {
    case "text":
      return inline.text;
    case "code":
      return <code key={key}>{inline.text}</code>;
    case "break":
      return <br key={key} />;
    case "link":
      return (
        <a key={key} href={inline.href} rel="noopener noreferrer" target="_blank">
          {inline.children.map(drawInline)}
        </a>
      );
    default: {
      const Span = inline.kind;
      return <Span key={key}>{inline.children.map(drawInline)}</Span>;
    }
  }
}
