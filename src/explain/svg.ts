/** A picture as a stand-alone SVG, readable on light and dark pages and by screen readers. */
import type { Box, Picture } from "./picture.ts";

const BOX = { width: 330, height: 46, gapX: 110, gapY: 14 } as const;
const MARGIN = 20;
const TITLE_HEIGHT = 34;

const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #1b1f24 }
  .title { font-weight: 600; font-size: 15px }
  .note, .label { font-size: 11px; fill: #57606a }
  rect { fill: #f6f8fa; stroke: #57606a }
  .unused { stroke-dasharray: 4 4 }
  path { fill: none; stroke: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note, .label { fill: #9da7b3 } rect { fill: #161b22; stroke: #9da7b3 } path { stroke: #9da7b3 }
  }
`;

/** The pictures, one below the other. */
export function svgText(pictures: readonly Picture[]): string {
  let top = MARGIN;
  const parts = pictures.map((picture) => {
    const drawn = drawnAt(picture, top);
    top = drawn.bottom + MARGIN;
    return drawn.text;
  });
  const width = 3 * BOX.width + 2 * BOX.gapX + 2 * MARGIN;
  const title = pictures.map((picture) => picture.title).join("; ");
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" width="${width}" height="${top}" role="img">`,
    `<title>${xml(title)}</title>`,
    `<style>${STYLE}</style>`,
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">' +
      '<path d="M0 0 8 4 0 8"/></marker></defs>',
    ...parts,
    "</svg>\n",
  ].join("\n");
}

function drawnAt({ title, boxes, arrows }: Picture, top: number): { readonly text: string; readonly bottom: number } {
  const places = new Map<string, { readonly x: number; readonly y: number }>();
  const counts = [0, 0, 0];
  for (const { id, column } of boxes) {
    const row = counts[column] ?? 0;
    counts[column] = row + 1;
    const x = MARGIN + column * (BOX.width + BOX.gapX);
    places.set(id, { x, y: top + TITLE_HEIGHT + row * (BOX.height + BOX.gapY) });
  }
  const lines = [`<text class="title" x="${MARGIN}" y="${top + 16}">${xml(title)}</text>`];
  for (const { from, to, label } of arrows) {
    const [start, end] = [places.get(from), places.get(to)];
    if (start === undefined || end === undefined) continue;
    const [x1, y1, x2, y2] = [start.x + BOX.width, start.y + BOX.height / 2, end.x, end.y + BOX.height / 2];
    const middle = (x1 + x2) / 2;
    lines.push(`<path d="M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}" marker-end="url(#tip)"/>`);
    if (label !== "") {
      lines.push(`<text class="label" text-anchor="end" x="${x2 - 12}" y="${y2 - 5}">${xml(label)}</text>`);
    }
  }
  for (const box of boxes) lines.push(boxText(box, places.get(box.id) ?? { x: 0, y: 0 }));
  const rows = Math.max(...counts);
  return { text: lines.join("\n"), bottom: top + TITLE_HEIGHT + rows * (BOX.height + BOX.gapY) };
}

function boxText({ title, note, isUsed }: Box, { x, y }: { readonly x: number; readonly y: number }): string {
  const rect = `<rect${isUsed ? "" : ' class="unused"'} x="${x}" y="${y}" width="${BOX.width}" height="${BOX.height}" rx="6"/>`;
  const name = `<text x="${x + 10}" y="${y + 19}">${xml(cut(title, 46))}</text>`;
  const below = note === "" ? "" : `<text class="note" x="${x + 10}" y="${y + 36}">${xml(cut(note, 58))}</text>`;
  return `<g><title>${xml(note === "" ? title : `${title}: ${note}`)}</title>${rect}${name}${below}</g>`;
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** Escapes text, and removes characters that XML does not allow at all. */
function xml(text: string): string {
  return text
    .replaceAll(/[\p{C}]/gu, "")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
