/** Three streams: the mark of the product. Its name stands beside it, so readers of screens skip it. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="7" fill="var(--ant-color-primary)" />
      <g fill="none" stroke="#fff" strokeWidth="2.2" strokeLinecap="round">
        <path d="M6 11.500c3.300-3.200 6.700-3.200 10 0s6.700 3.200 10 0" />
        <path d="M6 17c3.300-3.200 6.700-3.200 10 0s6.700 3.200 10 0" opacity=".8" />
        <path d="M6 22.500c3.300-3.200 6.700-3.200 10 0s6.700 3.200 10 0" opacity=".55" />
      </g>
    </svg>
  );
}
