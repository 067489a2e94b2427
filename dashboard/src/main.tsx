/** The start of the page. */
import { render } from "preact";
import { startKeys } from "./frame/keys";
import { startRouter } from "./frame/router";
import { Shell } from "./frame/shell";
import { startTheme } from "./frame/theme";
import "./style/tokens.css";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/table.css";
import "./style/pages.css";
import "./pages/streams/streams.css";
import "./pages/rings/rings.css";
import "./pages/crawls/crawls.css";
import "./inbox/inbox.css";

startTheme();
startRouter();
startKeys();
const place = document.getElementById("page");
if (place !== null) render(<Shell />, place);
