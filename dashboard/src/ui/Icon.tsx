/** Small line icons, drawn here. */
const PATHS = {
  inbox: "M2.5 9.5 4.5 3.5h7l2 6v3h-11zM2.5 9.5h3l1 1.5h3l1-1.5h3",
  overview: "M2.5 13.5h11M4 11V7.5M8 11V3M12 11V5.5",
  jobs: "M3 4h10M3 8h10M3 12h6",
  breakers: "M8.8 1.8 3.5 9H8l-.8 5.2L12.5 7H8z",
  queues: "M2.5 4.5 8 2l5.5 2.5L8 7zM2.5 8 8 10.5 13.5 8M2.5 11.5 8 14l5.5-2.5",
  streams: "M2 4.5c2-1.9 4 1.9 6 0s4 1.9 6 0M2 8c2-1.9 4 1.9 6 0s4 1.9 6 0M2 11.5c2-1.9 4 1.9 6 0s4 1.9 6 0",
  rings: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 5.6a2.4 2.4 0 1 0 0 4.8 2.4 2.4 0 0 0 0-4.8zM8 2.2v3.4M13 10.9l-2.9-1.7M3 10.9l2.9-1.7",
  crawls: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM2.2 8h11.6M8 2.2c-3.2 3.4-3.2 8.2 0 11.6M8 2.2c3.2 3.4 3.2 8.2 0 11.6",
  workers: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  schedules: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 5v3.2l2.2 1.4",
  alerts: "M8 2a4 4 0 0 1 4 4c0 4 1.5 5 1.5 5h-11S4 10 4 6a4 4 0 0 1 4-4zM6.7 13.5h2.6",
  audit: "M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4zM10.2 10.2l3.3 3.3",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  system: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  stop: "M4.5 4.5h7v7h-7z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3l8 5-8 5z",
  warning: "M8 2.2 14.2 13H1.8zM8 6.2v3.3M8 11.3v.2",
  chevron: "M6 3.5 10.5 8 6 12.5",
  back: "M10 3.5 5.5 8l4.5 4.5",
  copy: "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9",
  key: "M5.5 7.5a3 3 0 1 0 0 1M5.5 8h8M11.5 8v2.5",
  out: "M6.5 3h-4v10h4M6 8h7.5M10.5 5l3 3-3 3",
  edit: "M3 13l.6-3L11 2.7l2.3 2.3L6 12.4zM9.7 4l2.3 2.3",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { readonly name: IconName; readonly size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
