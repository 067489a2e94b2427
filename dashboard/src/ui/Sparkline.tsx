/** A row of small bars: how many, over time. */
export function Sparkline(props: {
  readonly values: readonly number[];
  readonly label: string;
  readonly width?: number;
  readonly height?: number;
}) {
  const { values, label, width = 96, height = 24 } = props;
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length);
  return (
    <svg class="sparkline" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <title>{label}</title>
      {values.map((value, at) => {
        const size = value === 0 ? 1 : Math.max(2, (value / most) * height);
        return (
          <rect
            key={at}
            class={value === 0 ? "none" : ""}
            x={at * step}
            y={height - size}
            width={Math.max(1, step - 1)}
            height={size}
            rx={0.5}
          />
        );
      })}
    </svg>
  );
}
