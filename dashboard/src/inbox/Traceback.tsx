/** A traceback: user code stands out, library code is folded away, and all of it can be copied. */
import { useState } from "preact/hooks";
import type { Attempt, Frame } from "../api/types";
import { Button } from "../ui/Button";
import { CopyButton } from "../ui/CodeBlock";
import { plural } from "../ui/format";
import { type Fold, foldsOf, hasUserCode } from "./frames";

export function Traceback({ of }: { readonly of: Pick<Attempt, "frames" | "traceback" | "error_name" | "message"> }) {
  const [isWhole, setWhole] = useState(false);
  if (of.traceback === "") {
    return (
      <p class="traceback-none">
        <strong>{of.error_name || "No error"}</strong> {of.message}
        <span class="muted"> No traceback was kept for this attempt.</span>
      </p>
    );
  }
  const canFold = hasUserCode(of.frames);
  const folds = foldsOf(of.frames);
  return (
    <div class="traceback">
      <div class="traceback-bar">
        {canFold && folds.some((fold) => fold.kind === "library") && (
          <Button kind="quiet" isSmall onClick={() => setWhole(!isWhole)}>
            {isWhole ? "Fold library frames" : "Show all frames"}
          </Button>
        )}
        <CopyButton text={of.traceback} label="Copy the traceback" />
      </div>
      <div class="traceback-text" tabIndex={0} role="region" aria-label="Traceback">
        {folds.map((fold, at) => (
          <FoldView key={at} fold={fold} isOpen={isWhole || !canFold} isLast={at === folds.length - 1} />
        ))}
      </div>
    </div>
  );
}

function FoldView({
  fold,
  isOpen,
  isLast,
}: {
  readonly fold: Fold;
  readonly isOpen: boolean;
  readonly isLast: boolean;
}) {
  const [isOpened, setOpened] = useState(false);
  if (fold.kind === "user") {
    return (
      <pre class="frame is-user">
        <span class="frame-mark">your code</span>
        {textOf(fold.frames)}
      </pre>
    );
  }
  if (fold.kind === "text") return <pre class={`frame is-text ${isLast ? "is-error" : ""}`}>{textOf(fold.frames)}</pre>;
  if (isOpen || isOpened) return <pre class="frame is-library">{textOf(fold.frames)}</pre>;
  return (
    <button type="button" class="frame fold" aria-expanded={false} onClick={() => setOpened(true)}>
      {plural(fold.frames.length, "library frame")} …
    </button>
  );
}

function textOf(frames: readonly Frame[]): string {
  return frames.map((frame) => frame.text.replace(/\n$/, "")).join("\n");
}
