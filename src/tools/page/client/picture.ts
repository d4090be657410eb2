/** Pictures of boxes in three columns, and arrows between them. */
import { html } from "./ui.ts";

/** A box with two lines of text. */
export interface Box {
  readonly title: string;
  readonly note: string;
  readonly column: 0 | 1 | 2;
  readonly isUsed: boolean;
  /** Where a click leads; the list below the picture has the same as links. */
  readonly href?: string;
}

export interface Arrow {
  readonly from: Box;
  readonly to: Box;
  readonly label: string;
}

export interface Picture {
  readonly title: string;
  readonly boxes: readonly Box[];
  readonly arrows: readonly Arrow[];
}

const BOX = { width: 236, height: 44, gapX: 150, gapY: 12 } as const;
/** The distance between arrows to the same box, if there is room. */
const APART = 15;
const MARGIN = 4;
/** A picture with more rows is less clear than the list below it. */
const MAX_ROWS = 12;

interface Place {
  readonly x: number;
  readonly y: number;
}

/** The title is for screen readers; the list of addresses and endpoints says the rest. */
export function pictureOf({ boxes, arrows, title }: Picture) {
  const columns = [0, 1, 2].map((column) => boxes.filter((box) => box.column === column));
  const rows = Math.min(MAX_ROWS + 1, Math.max(...columns.map(({ length }) => length)));
  const height = rows * (BOX.height + BOX.gapY) + 2 * MARGIN;
  const places = new Map<Box, Place>();
  for (const [column, own] of columns.entries()) {
    const x = MARGIN + column * (BOX.width + BOX.gapX);
    // Centers short columns next to long ones, but not below what a telephone shows at once.
    const top = MARGIN + Math.min(2, (rows - Math.min(own.length, MAX_ROWS)) / 2) * (BOX.height + BOX.gapY);
    for (const [row, box] of own.slice(0, MAX_ROWS).entries())
      places.set(box, { x, y: top + row * (BOX.height + BOX.gapY) });
  }
  const drawn = Array.from(Map.groupBy(arrows, ({ to }) => to).values(), (incoming) =>
    arrowsTo(incoming, places, arrows.length > 24),
  );
  const width = 3 * BOX.width + 2 * BOX.gapX + 2 * MARGIN;
  // Labels are above all arrows, so that no arrow crosses a text.
  return html`<svg viewBox=${`0 0 ${width} ${height}`} width=${width} role="img" class="picture">
    <title>${title}</title>
    ${drawn.map(({ lines }) => lines)}
    ${drawn.map(({ labels }) => labels)}
    ${boxes.map((box) => boxOf(box, places.get(box)))}
    ${columns.map(
      ({ length }, column) =>
        length > MAX_ROWS &&
        html`<text class="note" x=${MARGIN + column * (BOX.width + BOX.gapX) + 10} y=${height - MARGIN - BOX.height / 2}>and ${length - MAX_ROWS} more</text>`,
    )}
  </svg>`;
}

/** The arrows to one box, and a label for each text among them. */
function arrowsTo(incoming: readonly Arrow[], places: ReadonlyMap<Box, Place>, isCrowded: boolean) {
  const apart = Math.min(APART, (BOX.height - 10) / Math.max(1, incoming.length - 1));
  const labels = new Map<string, ReturnType<typeof html>>();
  const lines = incoming.map(({ from, to, label }, index) => {
    const [start, end] = [places.get(from), places.get(to)];
    if (start === undefined || end === undefined) return undefined;
    const [x1, y1] = [start.x + BOX.width, start.y + BOX.height / 2];
    const [x2, y2] = [end.x - 7, end.y + BOX.height / 2 + (index - (incoming.length - 1) / 2) * apart];
    const middle = (x1 + x2) / 2;
    if (label !== "" && !isCrowded && !labels.has(label)) {
      labels.set(label, html`<text class="label" text-anchor="end" x=${x2 - 4} y=${y2 + 4}>${label}</text>`);
    }
    return html`<path d=${`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />
      <path class="tip" d=${`M${x2} ${y2 - 4}l7 4l-7 4z`} />`;
  });
  return { lines, labels: [...labels.values()] };
}

function boxOf({ title, note, isUsed, href }: Box, place: Place | undefined) {
  if (place === undefined) return;
  const { x, y } = place;
  const box = html`<g>
    <title>${note === "" ? title : `${title}: ${note}`}</title>
    <rect class=${isUsed ? "box" : "box unused"} x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="7" />
    <text x=${x + 12} y=${y + (note === "" ? 27 : 19)}>${cut(title, 27)}</text>
    ${note !== "" && html`<text class="note" x=${x + 12} y=${y + 35}>${cut(note, 32)}</text>`}
  </g>`;
  return href === undefined ? box : html`<a href=${href} tabindex="-1">${box}</a>`;
}

/** Both ends of a name tell it from others. */
export function cut(text: string, length: number): string {
  const half = Math.floor((length - 1) / 2);
  return text.length > length ? `${text.slice(0, half)}…${text.slice(-half)}` : text;
}
