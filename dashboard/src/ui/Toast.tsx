/** Short notes at the edge of the page: what was done, and what was refused. */
import { signal } from "@preact/signals";
import { isAborted, problemOf } from "../api/client";
import { Button } from "./Button";
import { Icon } from "./Icon";

interface Note {
  readonly id: number;
  readonly text: string;
  readonly isBad: boolean;
}

const notes = signal<readonly Note[]>([]);
let nextId = 1;

function show(text: string, isBad: boolean): void {
  const note = { id: nextId++, text, isBad };
  notes.value = [...notes.value.slice(-3), note];
  setTimeout(() => dismiss(note.id), isBad ? 10_000 : 4_000);
}

function dismiss(id: number): void {
  notes.value = notes.value.filter((each) => each.id !== id);
}

/** Says that something was done. */
export function done(text: string): void {
  show(text, false);
}

/** Says what went wrong; takes whatever was thrown. */
export function failed(error: unknown): void {
  if (isAborted(error)) return;
  const problem = problemOf(error);
  show(problem.detail && problem.detail !== problem.title ? `${problem.title}: ${problem.detail}` : problem.title, true);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notes.value.map((note) => (
        <div key={note.id} class={`toast ${note.isBad ? "tone-bad" : "tone-good"}`}>
          <Icon name={note.isBad ? "warning" : "check"} />
          <span>{note.text}</span>
          <Button kind="quiet" isSmall icon="close" label="Dismiss" onClick={() => dismiss(note.id)} />
        </div>
      ))}
    </div>
  );
}
