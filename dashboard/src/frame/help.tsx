/** The keys that work on this page. */
import { Dialog } from "../ui/Dialog";
import { activeBindings } from "./keys";

export function Help({ onClose }: { readonly onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys">
        {activeBindings().map((binding) => (
          <div key={binding.keys}>
            <dt>
              {binding.keys.split(" ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{binding.does}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>close a dialog, leave the search</dd>
        </div>
      </dl>
    </Dialog>
  );
}
