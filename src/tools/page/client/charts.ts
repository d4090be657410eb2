/** Pictures of numbers, as SVG: they take the page's colours, print, and each has a table behind it. */
import { isRepair } from "../../../agent/sync/journal/sync-record.ts";
import type { FrontAnswer, ToldSync } from "../answers.ts";
import { type Children, html, msText, tableOf, timeText, urlOf } from "./ui.ts";

export const WIDTH = 560;
const HEIGHT = 190;
/** What axes and their texts take. */
const LEFT = 70;
const BOTTOM = 24;
const TOP = 12;

/** A picture with what it shows in words, and its numbers in a table. */
export function figure(
  title: string,
  drawn: Children,
  names: readonly string[],
  rows: readonly (readonly Children[])[],
  { height = HEIGHT, said = "" } = {},
) {
  return html`<figure>
    <figcaption>${title}</figcaption>
    <svg class="chart" viewBox=${`0 0 ${WIDTH} ${height}`} role="group" aria-label=${title}>${drawn}</svg>
    ${said !== "" && html`<p class="facts">${said}</p>`}
    <details><summary>As a table</summary>${tableOf(title, names, rows.slice(0, 100))}
      ${rows.length > 100 && html`<p class="facts">The first 100 of ${rows.length}</p>`}</details>
  </figure>`;
}

export const nothing = (title: string, why: string) =>
  html`<figure><figcaption>${title}</figcaption><p class="facts">${why}</p></figure>`;

export const text = (x: number, y: number, anchor: string, words: string) =>
  html`<text x=${x} y=${y} text-anchor=${anchor}>${words}</text>`;

const line = (y: number) => html`<path class="grid" d=${`M${LEFT} ${y}H${WIDTH}`} />`;

/** The powers of ten around some values. */
function decades(values: readonly number[]): readonly [low: number, high: number] {
  const logs = values.map((value) => Math.log10(Math.max(value, 0.01)));
  const low = Math.floor(Math.min(...logs));
  return [low, Math.max(low + 1, Math.ceil(Math.max(...logs)))];
}

export const totalOf = ({ stages: { waiting, model, rules, after } }: ToldSync): number =>
  waiting + model + rules + after;
export const outcomeOf = (sync: ToldSync): string =>
  sync.result === "done" && isRepair(sync) ? "repaired" : sync.result;

/** Time × milliseconds. @param syncs newest first. */
export function timeline(syncs: readonly ToldSync[]) {
  const title = `The last ${syncs.length} syncs: when, and how many milliseconds`;
  if (syncs.length === 0) return nothing("Syncs: when, and how many milliseconds", "No sync yet.");
  const times = syncs.map(({ endedMs }) => endedMs);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const [low, high] = decades(syncs.map(totalOf));
  const x = (ms: number) => LEFT + 8 + ((WIDTH - LEFT - 16) * (ms - first)) / Math.max(1, last - first);
  const y = (value: number) =>
    HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (Math.log10(Math.max(value, 0.01)) - low)) / (high - low);
  const axis = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  const drawn = html`
    ${axis.map((value) => [line(y(value)), text(LEFT - 6, y(value) + 4, "end", `${value < 1 ? value.toFixed(-Math.log10(value)) : value} ms`)])}
    ${text(LEFT, HEIGHT - 6, "start", timeText(first))}
    ${last > first && text(WIDTH, HEIGHT - 6, "end", timeText(last))}
    ${syncs.toReversed().map(
      (sync) => html`<a href=${urlOf("syncs", { sync: `${sync.number}` })} tabindex="-1">
        <title>${`${timeText(sync.endedMs)}: ${msText(totalOf(sync))} ms, ${outcomeOf(sync)}`}</title>
        <circle class=${outcomeOf(sync)} cx=${x(sync.endedMs)} cy=${y(totalOf(sync))} r="3.5" /></a>`,
    )}`;
  return figure(
    title,
    drawn,
    ["Sync", "Ended", "Milliseconds", "Outcome"],
    syncs.map((sync) => [
      html`<a href=${urlOf("syncs", { sync: `${sync.number}` })}>${sync.number}</a>`,
      ...[timeText(sync.endedMs), msText(totalOf(sync)), outcomeOf(sync)],
    ]),
  );
}

/** How often syncs took how long, with median and 99th percentile. */
export function histogram(syncs: readonly ToldSync[]) {
  if (syncs.length === 0) return nothing("How long syncs take", "No sync yet.");
  const values = syncs.map(totalOf).sort((a, b) => a - b);
  const [low, high] = decades(values);
  const each = 6;
  const counts = new Array<number>((high - low) * each).fill(0);
  for (const value of values) {
    const bin = Math.min(counts.length - 1, Math.floor((Math.log10(Math.max(value, 0.01)) - low) * each));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  const most = Math.max(...counts);
  const x = (log: number) => LEFT + ((WIDTH - LEFT) * (log - low)) / (high - low);
  const y = (count: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP - 14) * count) / most;
  const at = (share: number) => values[Math.ceil(share * values.length) - 1] ?? 0;
  const marks = [
    ["median", at(0.5)],
    [values.length < 100 ? "slowest" : "p99", at(0.99)],
  ] as const;
  const msAt = (log: number) => `${msText(10 ** log).replace(/\.0+$/, "")} ms`;
  const drawn = html`
    ${[0, most].map((count) => [line(y(count)), text(LEFT - 6, y(count) + 4, "end", `${count}`)])}
    ${Array.from({ length: high - low + 1 }, (_, index) => low + index).map((log) =>
      text(x(log), HEIGHT - 6, log === low ? "start" : log === high ? "end" : "middle", msAt(log)),
    )}
    ${counts.map((count, bin) => count > 0 && html`<rect class="bar" x=${x(low + bin / each) + 1} width=${(WIDTH - LEFT) / counts.length - 2} y=${y(count)} height=${HEIGHT - BOTTOM - y(count)} />`)}
    ${marks.map(([, value]) => html`<path class="mark" d=${`M${x(Math.log10(Math.max(value, 0.01)))} ${TOP + 6}V${HEIGHT - BOTTOM}`} />`)}`;
  const title = `How long syncs take: ${marks.map(([name, value]) => `${name} ${msText(value)} ms`).join(", ")}`;
  return figure(
    title,
    drawn,
    ["From", "To", "Syncs"],
    counts.flatMap((count, bin) =>
      count === 0
        ? []
        : [[`${msText(10 ** (low + bin / each))} ms`, `${msText(10 ** (low + (bin + 1) / each))} ms`, count]],
    ),
  );
}

/** Entries of connection tracking over the kept time, with the mark at 90 %. */
export function trackingPicture(points: FrontAnswer["tracked"], max: number) {
  const title = "Connection tracking: entries over time";
  if (points.length < 2 || max === 0)
    return nothing(title, points.length === 0 ? "The kernel does not say." : "A picture needs two minutes.");
  const first = points[0]?.[0] ?? 0;
  const last = points.at(-1)?.[0] ?? 0;
  const highest = Math.max(...points.map(([, entries]) => entries));
  // A nearly empty table is drawn to its own scale, which the axis says.
  const top = highest < max / 10 ? Math.max(10, highest * 1.25) : max;
  const x = (ms: number) => LEFT + ((WIDTH - LEFT) * (ms - first)) / Math.max(1, last - first);
  const y = (entries: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * entries) / top;
  const path = points.map(([ms, entries], index) => `${index === 0 ? "M" : "L"}${x(ms)} ${y(entries)}`).join("");
  const axis = [0, Math.round(top / 2), Math.round(top)];
  const drawn = html`
    ${axis.map((value) => [line(y(value)), text(LEFT - 6, y(value) + 4, "end", value.toLocaleString("en", { notation: "compact" }))])}
    ${top === max && html`<path class="mark" d=${`M${LEFT} ${y(0.9 * max)}H${WIDTH}`} />${text(WIDTH, y(0.9 * max) - 4, "end", "90 %")}`}
    <path class="area" d=${`${path}V${HEIGHT - BOTTOM}H${LEFT}z`} /><path class="line" d=${path} />
    ${text(LEFT, HEIGHT - 6, "start", timeText(first))}${text(WIDTH, HEIGHT - 6, "end", timeText(last))}`;
  return figure(
    title,
    drawn,
    ["Since", "Most entries"],
    points.toReversed().map(([ms, entries]) => [timeText(ms), entries.toLocaleString("en")]),
  );
}
