/** The picture of a service port: frontends, policies, endpoints, and the arrows between them. */
import type { Box, Picture } from "../../explain/picture.ts";
import { plain, svg } from "./dom.ts";

const BOX = { width: 236, height: 44, gapX: 150, gapY: 12 } as const;
/** The distance between arrows to the same box, if there is room. */
const APART = 15;
const MARGIN = 4;
/** A picture with more rows is less clear than the list below it. */
const MAX_ROWS = 40;

/** The title is for screen readers; the list of addresses and endpoints says the rest. */
export function pictureOf({ boxes, arrows, title }: Picture): SVGElement {
  const places = new Map<string, { readonly x: number; readonly y: number }>();
  const counts = [0, 0, 0];
  for (const { column } of boxes) counts[column] = (counts[column] ?? 0) + 1;
  const hidden = counts.map((count) => Math.max(0, count - MAX_ROWS));
  const rows = Math.min(MAX_ROWS + 1, Math.max(...counts));
  const height = rows * (BOX.height + BOX.gapY) + 2 * MARGIN;
  const next = [0, 0, 0];
  for (const { id, column } of boxes) {
    const row = next[column] ?? 0;
    next[column] = row + 1;
    if (row >= MAX_ROWS) continue;
    const shown = Math.min(counts[column] ?? 0, MAX_ROWS);
    // Centers short columns next to long ones.
    const top = MARGIN + ((rows - shown) * (BOX.height + BOX.gapY)) / 2;
    places.set(id, { x: MARGIN + column * (BOX.width + BOX.gapX), y: top + row * (BOX.height + BOX.gapY) });
  }
  const width = 3 * BOX.width + 2 * BOX.gapX + 2 * MARGIN;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "picture" });
  picture.append(svg("title", {}, plain(title)));
  const labels: SVGElement[] = [];
  const crowded = arrows.length > 24;
  for (const [to, incoming] of Map.groupBy(arrows, (arrow) => arrow.to)) {
    const end = places.get(to);
    const apart = Math.min(APART, (BOX.height - 10) / Math.max(1, incoming.length - 1));
    const said = new Set<string>();
    for (const [index, { from, label }] of incoming.entries()) {
      const start = places.get(from);
      if (start === undefined || end === undefined) continue;
      const offset = (index - (incoming.length - 1) / 2) * apart;
      const [x1, y1] = [start.x + BOX.width, start.y + BOX.height / 2];
      const [x2, y2] = [end.x - 7, end.y + BOX.height / 2 + offset];
      const middle = (x1 + x2) / 2;
      picture.append(svg("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
      picture.append(svg("path", { class: "tip", d: `M${x2} ${y2 - 4}l7 4l-7 4z` }));
      if (label === "" || crowded || said.has(label)) continue;
      said.add(label);
      labels.push(svg("text", { class: "label", "text-anchor": "end", x: x2 - 4, y: y2 + 4 }, plain(label)));
    }
  }
  // Labels are above all arrows, so that no arrow crosses a text.
  picture.append(...labels);
  for (const box of boxes) {
    const place = places.get(box.id);
    if (place !== undefined) picture.append(boxOf(box, place));
  }
  for (const [column, more] of hidden.entries()) {
    if (more === 0) continue;
    const x = MARGIN + column * (BOX.width + BOX.gapX) + 10;
    picture.append(svg("text", { class: "note", x, y: height - MARGIN - BOX.height / 2 }, `and ${more} more`));
  }
  return picture;
}

function boxOf({ title, note, isUsed }: Box, { x, y }: { readonly x: number; readonly y: number }): SVGElement {
  const { width, height } = BOX;
  return svg("g", {}, [
    svg("title", {}, plain(note === "" ? title : `${title}: ${note}`)),
    svg("rect", { class: isUsed ? "box" : "box unused", x, y, width, height, rx: 7 }),
    svg("text", { x: x + 12, y: y + (note === "" ? 27 : 19) }, plain(cut(title, 33))),
    note !== "" && svg("text", { class: "note", x: x + 12, y: y + 35 }, plain(cut(note, 40))),
  ]);
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
