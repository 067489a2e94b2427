/** Text as it is, in a fixed width, with a button that copies it. */
import { Button } from "./Button";
import { done } from "./Toast";

export function CodeBlock({ text, label }: { readonly text: string; readonly label: string }) {
  return (
    <div class="code-block">
      <pre tabIndex={0} aria-label={label}>
        {text}
      </pre>
      <CopyButton text={text} label={`Copy ${label.toLowerCase()}`} />
    </div>
  );
}

/** The clipboard is only there on https and loopback; elsewhere there is no button. */
export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  if (!window.isSecureContext) return null;
  return (
    <Button
      class="copy"
      kind="quiet"
      isSmall
      icon="copy"
      label={label}
      onClick={async () => {
        await navigator.clipboard.writeText(text);
        done("Copied");
      }}
    />
  );
}
