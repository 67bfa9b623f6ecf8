import type { ViewProps } from "../../view.ts";

export function TreeView({ about }: ViewProps) {
  return <p class="empty">Tree of {about.model}</p>;
}
