/** Bytes as people read them when a message is not what was expected. */

const ROW = 16;

/**
 * Lines of 16 bytes: offset, the bytes in groups of four, and the printable characters. Pure.
 *
 * @param maxBytes what lies beyond is only counted.
 */
export function hexDump(bytes: Uint8Array, maxBytes = 512): string {
  const shown = Math.min(bytes.length, maxBytes);
  const lines: string[] = [];
  for (let row = 0; row < shown; row += ROW) {
    const slice = bytes.subarray(row, Math.min(row + ROW, shown));
    const hex = Array.from(slice, (byte, index) => byte.toString(16).padStart(2, "0") + (index % 4 === 3 ? " " : ""));
    const text = Array.from(slice, (byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "."));
    lines.push(`${row.toString(16).padStart(4, "0")}  ${hex.join("").padEnd(ROW * 2 + 4)} ${text.join("")}`);
  }
  if (shown < bytes.length) lines.push(`…and ${bytes.length - shown} bytes more`);
  return lines.join("\n");
}
