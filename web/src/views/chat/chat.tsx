import type { ViewProps } from "../../view.ts";

export function ChatView({ about }: ViewProps) {
  return <p class="empty">Chat of {about.model}</p>;
}
