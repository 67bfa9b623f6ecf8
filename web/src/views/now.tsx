import type { ViewProps } from "./../view.ts";

export function NowView({ about }: ViewProps) {
  return <p class="empty">Now of {about.model}</p>;
}
