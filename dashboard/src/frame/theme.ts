/** Light or dark: the system's choice until somebody chooses here; public/theme.js applies it before the first paint. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEPT_AS = "holdfast.theme";

function kept(): Theme {
  try {
    const value = localStorage.getItem(KEPT_AS);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
export const theme = signal<Theme>(kept());

/** What is seen now; charts draw anew when it changes. */
export const shown = signal<"light" | "dark">("light");

function show(): void {
  shown.value = theme.value === "system" ? (systemIsDark.matches ? "dark" : "light") : theme.value;
}

/** Follows the choice and the system; called once. */
export function startTheme(): void {
  systemIsDark.addEventListener("change", show);
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme.value;
    show();
    try {
      if (theme.value === "system") localStorage.removeItem(KEPT_AS);
      else localStorage.setItem(KEPT_AS, theme.value);
    } catch {
      // Storage is switched off: the choice lasts as long as the page.
    }
  });
}

/** One button for three choices. */
export function nextTheme(now: Theme): Theme {
  return now === "system" ? "light" : now === "light" ? "dark" : "system";
}
