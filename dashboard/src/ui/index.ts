/** Everything that pages are built from. */
export { Badge, Pill, toneOf, type Tone } from "./Badge";
export { Button, type ButtonProps } from "./Button";
export { Chart, type Series } from "./Chart";
export { CodeBlock, CopyButton } from "./CodeBlock";
export { Confirm, confirmed, Dialog } from "./Dialog";
export { Choice, Field, Search } from "./Field";
export { Icon, type IconName } from "./Icon";
export { Facts, PageHead, Panel, Stat } from "./Panel";
export { Pager } from "./Pager";
export { Sparkline } from "./Sparkline";
export { Empty, ErrorBox, Loaded, Skeleton } from "./States";
export { Table, toggled, type Column } from "./Table";
export { Tabs, type Tab } from "./Tabs";
export { Countdown, nowAt, Time } from "./Time";
export { done, failed, Toasts } from "./Toast";
export * as format from "./format";
