import { render } from "preact";
import { Api } from "./api.ts";
import { Shell } from "./shell.tsx";
import { startTheme } from "./theme.ts";
import "./theme.css";
import "./shell.css";

startTheme();
const page = document.getElementById("page");
if (page) {
  render(<Shell api={new Api()} />, page);
}
