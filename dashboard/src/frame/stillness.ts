/** Lists that move by themselves hold still while somebody reads them. */
import { useEffect, useRef, useState } from "preact/hooks";

const REST_MS = 8_000;

/** Whether somebody is pointing at a list, or has walked through it with the keyboard a moment ago. */
export function useStillness() {
  const [isHeld, setHeld] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const release = () => {
    clearTimeout(timer.current);
    setHeld(false);
  };
  const holdOn = () => {
    clearTimeout(timer.current);
    setHeld(true);
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "j" && event.key !== "k") return;
      holdOn();
      timer.current = setTimeout(release, REST_MS);
    };
    document.addEventListener("keydown", onKey);
    return () => {
      document.removeEventListener("keydown", onKey);
      clearTimeout(timer.current);
    };
  }, []);
  return [isHeld, { onPointerEnter: holdOn, onPointerLeave: release, onFocusIn: holdOn, onFocusOut: release }] as const;
}
