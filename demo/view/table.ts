/** The demo's table as lines: one block per service port, one row per address, one column per client. */
import type { IpFamily } from "../../src/net/ip.ts";
import { joinHostPort } from "../../src/net/ip.ts";
import type { Judgement } from "../judgement.ts";
import { type Block, type Cell, type PodShare, type Row, totalsOf } from "../results.ts";
import { positions } from "../targets.ts";
import { cutLine, type Line, padLine, type Segment, segment, widthOf } from "./styled-line.ts";
import { wrapLine } from "./wrap.ts";

const GAP = 2;
/** The least width of a cell with whole words. */
const WORDS_WIDTH = 21;
/** The least width of a cell, however wide the addresses are. */
const CELL_WIDTH = 12;
export const columnTitles = { pod: "from a pod", node: "from the node", client: "from outside" } as const;
const shortTitles = { pod: "pod", node: "node", client: "outside" } as const;

/** How to show the table. Without `columns`, its width is not limited. */
export interface Layout {
  readonly columns?: number | undefined;
  /** Title of the marked block. */
  readonly selected?: string | undefined;
}

type Words = "long" | "short";

/** `kept`: the pod sees the client's address; `masq`: it sees the node's. */
function resultText({ text }: Judgement, words: Words): string {
  if (words === "long") return text;
  return text.replace(/^source kept.*/, "kept").replace(/^masqueraded.*/, "masq");
}

function cellLine(cell: Cell | undefined, words: Words): Line {
  if (cell === undefined) return [segment("·", "dim")];
  const { judgement, previous, requests } = cell;
  if (judgement === undefined) {
    return [segment(previous === undefined ? "… asking" : `… ${resultText(previous, words)}`, "dim")];
  }
  const mark = judgement.isRight ? segment("✓ ", "green") : segment("✗ ", "red", "bold");
  const text = resultText(judgement, words);
  const result = judgement.isRight ? segment(text) : segment(text, "red");
  return words === "long" ? [mark, result, segment(` ×${requests}`, "dim")] : [mark, result];
}

function rowCells({ target, cells }: Row, words: Words): Line[] {
  return [
    [segment(`  ${target.kind}`)],
    [segment(joinHostPort(target.address, target.number), "cyan")],
    ...positions.map((position) => cellLine(cells.get(position), words)),
  ];
}

/** `IPv4  web-1 51%  web-3@node-b 49%  web-2 not ready`. */
export function shareLine({ rows }: Block, family: IpFamily, pods: ReadonlyMap<string, PodShare>): Line {
  const label = segment(`  ${family}  `, "dim");
  if (pods.size === 0) return [label, segment("no endpoints", "yellow")];
  const total = [...pods.values()].reduce((sum, { answers }) => sum + answers, 0);
  const isAnswered = rows.some(
    ({ target, cells }) =>
      target.family === family && [...cells.values()].some(({ judgement }) => judgement !== undefined),
  );
  const shares = [...pods].flatMap(([name, { place, state, answers }], index) => [
    segment(index === 0 ? "" : "  "),
    segment(place === "" ? name : `${name}@${place}`, ...(answers > 0 || !isAnswered ? [] : (["dim"] as const))),
    segment(total === 0 ? "" : ` ${Math.round((100 * answers) / total)}%`, "bold"),
    segment(state === "" ? "" : ` ${state}`, "yellow"),
  ]);
  return [label, ...shares];
}

function titleLine({ title, traits, isChanged }: Block, selected: string | undefined): Line {
  return [
    ...(title === selected ? [segment("▸ ", "bold")] : []),
    segment(title, "bold"),
    segment(isChanged ? "  changed" : "", "yellow"),
    segment(`   ${traits.join(" · ")}`, "dim"),
  ];
}

function headingLines(block: Block, { columns, selected }: Layout): Line[] {
  const title = titleLine(block, selected);
  const shares: Line[] =
    block.note === ""
      ? [...block.pods].map(([family, pods]) => shareLine(block, family, pods))
      : [[segment(`  ${block.note}`, "yellow")]];
  if (columns === undefined) return [title, ...shares];
  return [cutLine(title, columns), ...shares.flatMap((line) => wrapLine(line, columns, 8))];
}

export interface Table {
  readonly head: Line;
  readonly body: readonly Line[];
  /** Index in the body where each block begins. */
  readonly starts: readonly number[];
}

/** The table. Columns are as wide as their widest text, including the head, if there is room. */
export function tableLines(blocks: readonly Block[], layout: Layout = {}): Table {
  const { columns } = layout;
  const labels = blocks.flatMap(({ rows }) => rows.map((row) => rowCells(row, "short").slice(0, 2)));
  const labelWidths = [0, 1].map((at) => Math.max(9, ...labels.map((cells) => widthOf(cells[at] ?? []))) + GAP);
  const [kindWidth = 0, addressWidth = 0] = labelWidths;
  const room = columns === undefined ? undefined : Math.floor((columns - kindWidth - addressWidth) / 3);
  const words = room === undefined || room >= WORDS_WIDTH ? "long" : "short";
  const titles = words === "long" ? columnTitles : shortTitles;
  const head: Line[] = [
    [segment("  ADDRESS", "dim")],
    [segment("")],
    ...positions.map((position): Line => [segment(titles[position].toUpperCase(), "dim")]),
  ];
  const bodies = blocks.map((block) => ({ block, rows: block.rows.map((row) => rowCells(row, words)) }));
  const all = [head, ...bodies.flatMap(({ rows }) => rows)];
  const natural = head.map((_, column) => Math.max(...all.map((cells) => widthOf(cells[column] ?? []))) + GAP);
  const widths = columns === undefined ? natural : fittingWidths(natural, columns);
  const join = (cells: readonly Line[]): Line =>
    cells.flatMap((cell, column) => {
      const width = widths[column] ?? 0;
      return padLine(columns === undefined ? cell : cutLine(cell, Math.max(1, width - 1)), width);
    });
  const body: Line[] = [];
  const starts: number[] = [];
  for (const { block, rows } of bodies) {
    if (body.length > 0) body.push([]);
    starts.push(body.length);
    body.push(...headingLines(block, layout), ...rows.map(join));
  }
  return { head: join(head), body, starts };
}

/** Cells get the room that addresses leave, but at least enough for a word; if needed, addresses are cut. */
function fittingWidths([kind = 0, address = 0, ...cells]: readonly number[], columns: number): number[] {
  const most = Math.max(CELL_WIDTH, Math.floor((columns - kind - address) / cells.length));
  const fitting = cells.map((width) => Math.min(width, most));
  const taken = fitting.reduce((sum, width) => sum + width, 0);
  return [kind, Math.max(GAP, Math.min(address, columns - kind - taken)), ...fitting];
}

/** One line for each wrong cell. */
export function failureLines(blocks: readonly Block[]): Line[] {
  return blocks.flatMap((block) =>
    block.rows.flatMap(({ target, cells }) =>
      positions.flatMap((position): Line[] => {
        const judgement = cells.get(position)?.judgement;
        if (judgement === undefined || judgement.isRight) return [];
        const where = `${block.title} ${target.kind} ${joinHostPort(target.address, target.number)} ${columnTitles[position]}`;
        return [[segment("✗ ", "red", "bold"), segment(`${where}: `, "bold"), segment(judgement.detail)]];
      }),
    ),
  );
}

/** `✓ 148 as expected · 1204 requests`. */
export function summaryLine(blocks: readonly Block[]): Line {
  const { right, wrong, pending, requests } = totalsOf(blocks);
  const parts: Segment[] = [
    segment(`✓ ${right} as expected`, "green"),
    ...(wrong > 0 ? [segment(" · "), segment(`✗ ${wrong} not as expected`, "red", "bold")] : []),
    ...(pending > 0 ? [segment(` · ${pending} being asked`, "dim")] : []),
    segment(` · ${requests} requests`, "dim"),
  ];
  return parts;
}
