/** A traceback as pieces to fold: what the user wrote stays open, what libraries did is folded away. */

import type { Frame } from "../api/types";

/** Pieces that belong together: one of user code, or library frames in a row. */
export interface Fold {
  readonly kind: "user" | "library" | "text";
  readonly frames: readonly Frame[];
}

/** Frames in a row of one kind, put together; headings and the error's own line are always shown. */
export function foldsOf(frames: readonly Frame[]): Fold[] {
  const folds: { kind: Fold["kind"]; frames: Frame[] }[] = [];
  for (const frame of frames) {
    const kind = kindOf(frame);
    const last = folds.at(-1);
    if (last?.kind === kind && kind !== "user") last.frames.push(frame);
    else folds.push({ kind, frames: [frame] });
  }
  return folds;
}

/** Whether there is user code in it: if not, nothing should be folded away. */
export function hasUserCode(frames: readonly Frame[]): boolean {
  return frames.some((frame) => frame.is_user_code);
}

/** The innermost frame of user code: where to look first. */
export function culpritOf(frames: readonly Frame[]): Frame | undefined {
  return frames.findLast((frame) => frame.is_user_code);
}

const PLACE = /^\s*(?:[|+-]\s*)*File "([^"]*)", line (\d+)(?:, in (.*))?/;

/** File, line and function of a frame; null for a line that is none. */
export function placeOf(frame: Frame): { readonly file: string; readonly line: string; readonly name: string } | null {
  const found = PLACE.exec(frame.text);
  return found ? { file: found[1] ?? "", line: found[2] ?? "", name: found[3] ?? "" } : null;
}

function kindOf(frame: Frame): Fold["kind"] {
  if (frame.is_user_code) return "user";
  return placeOf(frame) === null ? "text" : "library";
}
