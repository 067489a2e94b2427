/** A table with keyboard: j and k move, Enter opens, x selects. On a phone each row becomes a card. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { go } from "../frame/router";
import { useKeys } from "../frame/keys";

export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  /** Numbers stand at the right. */
  readonly isNumber?: boolean;
  /** Takes the room that is left, and is cut with dots. */
  readonly isWide?: boolean;
  /** Left out on a phone. */
  readonly isExtra?: boolean;
  /** Left out on a narrow desk too. */
  readonly isSpare?: boolean;
  /** Whether a row has nothing to say here; a phone then leaves it out. */
  readonly isVoid?: (row: T) => boolean;
}

export interface TableProps<T> {
  readonly label: string;
  readonly rows: readonly T[];
  readonly columns: readonly Column<T>[];
  /** Stays with a row through refreshes, so that the cursor and the selection do. */
  readonly keyOf: (row: T) => string;
  /** Where a row leads; rows without it cannot be opened. */
  readonly hrefOf?: (row: T) => string;
  readonly selected?: ReadonlySet<string>;
  readonly onSelect?: (keys: ReadonlySet<string>) => void;
  /** Leaves j and k to a page that has several tables. */
  readonly isKeyless?: boolean;
  /** Keys that do something with the row the cursor is on. */
  readonly rowKeys?: readonly { readonly keys: string; readonly does: string; readonly run: (row: T) => void }[];
}

/** The selection with one key more or less. */
export function toggled(selected: ReadonlySet<string>, key: string): ReadonlySet<string> {
  const next = new Set(selected);
  if (!next.delete(key)) next.add(key);
  return next;
}

function classOf<T>(column: Column<T>): string {
  return `${column.isNumber ? "number" : ""} ${column.isWide ? "wide" : ""} ${column.isExtra ? "extra" : ""} ${column.isSpare ? "spare" : ""}`;
}

export function Table<T>(props: TableProps<T>) {
  const { rows, columns, keyOf, hrefOf, selected, onSelect } = props;
  const [cursor, setCursor] = useState<string | null>(null);
  const body = useRef<HTMLTableSectionElement>(null);
  const keys = rows.map(keyOf);
  const at = cursor === null ? -1 : keys.indexOf(cursor);

  const move = (to: number) => {
    const key = keys[Math.max(0, Math.min(keys.length - 1, to))];
    if (key !== undefined) setCursor(key);
  };
  useEffect(() => {
    if (at >= 0) body.current?.rows[at]?.scrollIntoView({ block: "nearest" });
  }, [cursor]);
  const bindings = [
    { keys: "j", does: "next row", run: () => move(at + 1) },
    { keys: "k", does: "previous row", run: () => move(at < 0 ? 0 : at - 1) },
    ...(hrefOf
      ? [
          {
            keys: "Enter",
            does: "open the row",
            run: () => {
              const row = rows[at];
              if (row !== undefined) go(hrefOf(row));
            },
          },
        ]
      : []),
    ...(onSelect && selected
      ? [
          {
            keys: "x",
            does: "select the row",
            run: () => {
              if (at >= 0 && cursor !== null) onSelect(toggled(selected, cursor));
            },
          },
        ]
      : []),
    ...(props.rowKeys ?? []).map(({ keys: pressed, does, run }) => ({
      keys: pressed,
      does,
      run: () => {
        const row = rows[at];
        if (row !== undefined) run(row);
      },
    })),
  ];
  useKeys(props.isKeyless ? [] : bindings);

  const areAll = selected !== undefined && keys.length > 0 && keys.every((key) => selected.has(key));
  return (
    <div class="table-box" {...(hrefOf ? {} : { tabIndex: 0, role: "region", "aria-label": props.label })}>
      <table aria-label={props.label}>
        <thead>
          <tr>
            {selected && onSelect && (
              <th class="select" scope="col">
                <input
                  type="checkbox"
                  aria-label="Select all on this page"
                  checked={areAll}
                  onChange={() => onSelect(areAll ? new Set() : new Set(keys))}
                />
              </th>
            )}
            {columns.map((column) => (
              <th
                key={column.title}
                scope="col"
                class={classOf(column)}
              >
                {column.title || <span class="unseen">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row, index) => {
            const key = keys[index] ?? "";
            const isSelected = selected?.has(key) ?? false;
            return (
              <tr
                key={key}
                class={`${index === at ? "cursor" : ""} ${isSelected ? "selected" : ""} ${hrefOf ? "opens" : ""}`}
                onClick={(event) => {
                  if (!hrefOf || (event.target as Element).closest("a, button, input, label, select")) return;
                  // Text that was just marked with the mouse is to be copied, not opened.
                  if (getSelection()?.toString()) return;
                  if (event.ctrlKey || event.metaKey) open(hrefOf(row));
                  else go(hrefOf(row));
                }}
              >
                {selected && onSelect && (
                  <td class="select">
                    <input
                      type="checkbox"
                      aria-label={`Select ${key}`}
                      checked={isSelected}
                      onChange={() => onSelect(toggled(selected, key))}
                    />
                  </td>
                )}
                {columns.map((column) => (
                  <td
                    key={column.title}
                    data-label={column.title}
                    class={`${classOf(column)} ${column.isVoid?.(row) ? "void" : ""}`}
                  >
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
