import type { ViewProps } from "./../view.ts";

export function RequestsView({ about }: ViewProps) {
  return <p class="empty">Requests of {about.model}</p>;
}
