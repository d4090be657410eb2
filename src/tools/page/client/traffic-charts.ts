/** Pictures of a service port's connections: the share of each endpoint as planned and as measured, and who talks to whom. */
import type { ExplainedEndpoint, PortExplanation } from "../../explain/explanation.ts";
import { shareText } from "../../explain/words.ts";
import { OTHERS, type Talk } from "../answers.ts";
import { figure, nothing, text, WIDTH } from "./charts.ts";
import { cut } from "./picture.ts";
import { type Children, html, numbered } from "./ui.ts";

/** What is measured as one: an endpoint, or those of a node or zone. */
export interface Measured {
  readonly name: Children;
  readonly title: string;
  readonly own: readonly ExplainedEndpoint[];
}

const MAX_BARS = 10;
const BAR_ROW = 34;
const POLICIES = ["cluster", "local"] as const;

/** What the counts say: those since the kernel counts, else the open ones. Undefined: not known of some. */
export function measuredShares(groups: readonly Measured[], { policies, balancing }: Counting) {
  const all = groups.flatMap(({ own }) => own);
  const what = (["counted", "open"] as const).find((one) => all.every((endpoint) => typeof endpoint[one] === "number"));
  if (what === undefined) return undefined;
  const sum = (own: readonly ExplainedEndpoint[]) => own.reduce((total, one) => total + (one[what] ?? 0), 0);
  const total = sum(all);
  const asked = POLICIES.filter((policy) => all.some((one) => one[policy] !== null));
  // Connections of one client are not independent if its address decides.
  const isDrawn = asked.length === 1 && policies.sessionAffinity === "None" && balancing?.hash !== "SourceHash";
  const rows = groups.map(({ own, ...group }) => {
    const planned = asked.map((policy) => own.reduce((share, one) => share + (one[policy]?.share ?? 0), 0));
    const [share = 0] = planned;
    const spread = 1.96 * Math.sqrt((share * (1 - share)) / total);
    const range = isDrawn ? ([Math.max(0, share - spread), Math.min(1, share + spread)] as const) : undefined;
    const measured = sum(own) / total;
    const off = Math.min(...planned.map((one) => Math.abs(one - measured)));
    return { ...group, ...{ count: sum(own), planned, range, measured, off } };
  });
  return { what, total, asked, rows };
}

type Counting = Pick<PortExplanation, "policies" | "balancing">;

/** @returns undefined if no counts were asked for, or not all are known. */
export function sharesPicture(groups: readonly Measured[], counting: Counting) {
  const shares = measuredShares(groups, counting);
  const title = "Share of connections, planned and measured";
  if (shares === undefined || groups.length === 0) return undefined;
  const { what, total, asked, rows } = shares;
  if (total === 0) return nothing(title, "No connection yet.");
  const drawn = rows.length > MAX_BARS ? rows.toSorted((one, other) => other.off - one.off).slice(0, MAX_BARS) : rows;
  const most = Math.max(...drawn.flatMap(({ measured, planned, range = [] }) => [measured, ...planned, ...range]));
  const x = (share: number) => (share / most) * WIDTH;
  const bars = drawn.map(({ title: name, planned, range, measured }, row) => {
    const y = row * BAR_ROW;
    return html`<g><title>${name}</title>${text(0, y + 15, "start", cut(name, asked.length > 1 ? 20 : 26))}
      ${text(WIDTH, y + 15, "end", `${shareText(measured)}, planned ${planned.map(shareText).join(" or ")}`)}
      <path class="grid" d=${`M0 ${y + 25}H${WIDTH}`} /><rect class="bar" y=${y + 20} width=${x(measured)} height="9" />
      ${range && html`<path class="range" d=${`M${x(range[0])} ${y + 25}H${x(range[1])}`} />`}
      ${planned.map((share) => html`<path class="plan" d=${`M${x(share)} ${y + 18}v13`} />`)}</g>`;
  });
  const chance = rows.some(({ range }) => range) ? ", the line what chance makes of it in 95 of 100 cases" : "";
  const part = drawn.length < rows.length ? ` The ${drawn.length} furthest from it are drawn.` : "";
  const limit =
    what === "open" ? "These also depend on how long they last." : "An endpoint that came later has counted less.";
  return figure(
    title,
    bars,
    ["Endpoints", "Connections", "Measured", ...asked.map((one) => `Planned, ${one} policy`), "By chance"],
    rows.map(({ name, count, measured, planned, range }) => [
      ...[name, count.toLocaleString("en"), shareText(measured), ...planned.map(shareText)],
      range ? `${shareText(range[0])} to ${shareText(range[1])}` : "not known",
    ]),
    {
      height: drawn.length * BAR_ROW,
      said: `Of ${numbered(total, `${what} connection`)}; the mark is the plan${chance}.${part} ${limit}`,
    },
  );
}

/** The height of all connections together, and of a name at least. */
const FLOW = 190;
const NAME = 24;

/** Clients on the left, endpoints on the right, joined by bands as thick as their connections. */
export function talksPicture(
  talks: readonly Talk[],
  titleOf: (name: string, side: number) => string,
  linked: (name: string, side: number) => Children,
) {
  const total = sumOf(talks);
  if (total === 0) return nothing("Who talks to whom", "No open connection.");
  const scale = FLOW / total;
  const columns = [columnOf(talks, 0, scale), columnOf(talks, 1, scale)] as const;
  const bands = talks.map(([client, endpoint, open]) => {
    const [y1, y2] = [columns[0].place(client, open * scale), columns[1].place(endpoint, open * scale)];
    return html`<path class="band" stroke-width=${Math.max(1, open * scale)} d=${`M5 ${y1}C${WIDTH / 2} ${y1} ${WIDTH / 2} ${y2} ${WIDTH - 5} ${y2}`}>
      <title>${`${titleOf(client, 0)} to ${titleOf(endpoint, 1)}: ${open}`}</title></path>`;
  });
  const names = columns.map(({ rows }, side) =>
    rows.map(({ name, open, top, band }) => {
      const [x, anchor] = side === 0 ? [10, "start"] : [WIDTH - 10, "end"];
      const title = titleOf(name, side);
      return html`<g><title>${`${title}: ${open}`}</title>
        <rect class="bar" x=${side * (WIDTH - 5)} y=${top} width="5" height=${band} />
        ${text(x, top + band / 2 + 5, anchor, `${cut(title, 24)} · ${open}`)}</g>`;
    }),
  );
  return figure(
    `Who talks to whom: ${numbered(total, "open connection")}`,
    [bands, names],
    ["Client", "Endpoint", "Open"],
    talks.map(([client, endpoint, open]) => [linked(client, 0), linked(endpoint, 1), open.toLocaleString("en")]),
    {
      height: Math.max(...columns.map(({ height }) => height)),
      said: "Clients are on the left, endpoints on the right.",
    },
  );
}

const sumOf = (talks: readonly Talk[]) => talks.reduce((sum, [, , open]) => sum + open, 0);

/** Each name of a side has a row, as high as its connections and at least as its text. */
function columnOf(talks: readonly Talk[], side: 0 | 1, scale: number) {
  const ends = new Map<string, number>();
  let height = 0;
  const sorted = talks.toSorted((one, other) => Number(one[side] === OTHERS) - Number(other[side] === OTHERS));
  const rows = Array.from(
    Map.groupBy(sorted, (talk) => talk[side]),
    ([name, own]) => {
      const band = Math.max(1, sumOf(own) * scale);
      const size = Math.max(NAME, band + 4);
      const top = height + (size - band) / 2;
      ends.set(name, top);
      height += size;
      return { name, open: sumOf(own), top, band };
    },
  );
  const place = (name: string, width: number): number => {
    const from = ends.get(name) ?? 0;
    ends.set(name, from + width);
    return from + width / 2;
  };
  return { rows, height, place };
}
