/** The mark: two posts and the line that holds between them. */
export function Logo() {
  return (
    <svg class="logo" width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M10 7v18M22 7v18M10 16c3-4 9 4 12 0" />
    </svg>
  );
}
