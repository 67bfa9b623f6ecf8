// What every view is given.

import type { Api } from "./api.ts";
import type { About } from "./contract.ts";

export interface ViewProps {
  api: Api;
  about: About;
  /** Says a sentence to screen readers. */
  announce: (sentence: string) => void;
}
