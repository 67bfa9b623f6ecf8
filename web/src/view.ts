// What every view is given.

import type { Api } from "./api.ts";
import type { About } from "./contract.ts";
import type { ChatStore } from "./views/chat/chat_store.ts";
import type { NowHistory } from "./views/now/history.ts";

export interface ViewProps {
  api: Api;
  about: About;
  /** Lives as long as the page, so answers go on while another view is shown. */
  chats: ChatStore;
  /** Also lives as long as the page: series go back five minutes when their view is shown again. */
  history: NowHistory;
  /** Says a sentence to screen readers. */
  announce: (sentence: string) => void;
}
