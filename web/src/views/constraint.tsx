import type { ViewProps } from "./../view.ts";

export function ConstraintView({ about }: ViewProps) {
  return <p class="empty">Constraint of {about.model}</p>;
}
