/** A modal dialog on the browser's own <dialog>: it traps the focus, closes on Esc and gives the focus back. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Button } from "./Button";

export interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  /** Buttons at the bottom, the main one last. */
  readonly actions?: ComponentChildren;
  readonly isWide?: boolean;
}

export function Dialog({ title, onClose, children, actions, isWide }: DialogProps) {
  const own = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const dialog = own.current;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={own}
      class={isWide ? "wide" : ""}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === own.current) onClose();
      }}
    >
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
        </header>
        <div class="dialog-body">{children}</div>
        {actions && <footer>{actions}</footer>}
      </div>
    </dialog>
  );
}

interface Question {
  readonly title: string;
  readonly text: ComponentChildren;
  readonly action: string;
  readonly isDanger: boolean;
  readonly answer: (isYes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Asks before something is done: `if (await confirmed({ title, text, action: "Cancel 3 jobs" })) …`. */
export function confirmed(asked: {
  readonly title: string;
  readonly text: ComponentChildren;
  readonly action: string;
  readonly isDanger?: boolean;
}): Promise<boolean> {
  question.value?.answer(false);
  return new Promise((answer) => {
    question.value = {
      ...asked,
      isDanger: asked.isDanger ?? false,
      answer: (isYes) => {
        question.value = null;
        answer(isYes);
      },
    };
  });
}

/** Where `confirmed` shows its question; the shell has one. */
export function Confirm() {
  const now = question.value;
  if (now === null) return null;
  return (
    <Dialog
      title={now.title}
      onClose={() => now.answer(false)}
      actions={
        <>
          <Button onClick={() => now.answer(false)}>Keep as it is</Button>
          <Button kind={now.isDanger ? "danger" : "main"} onClick={() => now.answer(true)}>
            {now.action}
          </Button>
        </>
      }
    >
      {typeof now.text === "string" ? <p>{now.text}</p> : now.text}
    </Dialog>
  );
}
