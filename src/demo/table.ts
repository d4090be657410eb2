/** The demo's table as lines: one block per service port, one row per address, one column per client. Pure. */
import { positions } from "./expectations.ts";
import { type Block, type Cell, type Row, totalsOf } from "./results.ts";
import { type Line, padLine, type Segment, segment, widthOf } from "./styled-line.ts";
import { socketText } from "./targets.ts";

const GAP = 2;
const columnTitles = { pod: "from a pod", node: "from the node", client: "from outside" } as const;

function cellLine(cell: Cell | undefined): Line {
  if (cell === undefined) return [segment("·", "dim")];
  const { judgement, previous, requests } = cell;
  if (judgement === undefined) return [segment(previous === undefined ? "… asking" : `… ${previous.text}`, "dim")];
  const mark = judgement.isRight ? segment("✓ ", "green") : segment("✗ ", "red", "bold");
  const text = judgement.isRight ? segment(judgement.text) : segment(judgement.text, "red");
  return [mark, text, segment(` ×${requests}`, "dim")];
}

function rowCells({ target, cells }: Row): Line[] {
  return [
    [segment(`  ${target.kind}`)],
    [segment(socketText(target.address, target.number), "cyan")],
    ...positions.map((position) => cellLine(cells.get(position))),
  ];
}

function shareText(answers: number, total: number): string {
  return total === 0 ? "" : ` ${Math.round((100 * answers) / total)}%`;
}

/** `web-1 51%  web-3@node-b 49%  web-2 not ready`. */
function podSegments({ pods, rows }: Block): Segment[] {
  if (pods.size === 0) return [segment("no endpoints", "yellow")];
  const total = [...pods.values()].reduce((sum, { answers }) => sum + answers, 0);
  const isAnswered = rows.some(({ cells }) => [...cells.values()].some(({ judgement }) => judgement !== undefined));
  return [...pods].flatMap(([name, { place, state, answers }], index) => [
    segment(index === 0 ? "" : "  "),
    segment(place === "" ? name : `${name}@${place}`, ...(answers > 0 || !isAnswered ? [] : (["dim"] as const))),
    segment(shareText(answers, total), "bold"),
    segment(state === "" ? "" : ` ${state}`, "yellow"),
  ]);
}

function titleLine(block: Block): Line {
  const { title, traits, note, isChanged } = block;
  return [
    segment(title, "bold"),
    segment(isChanged ? "  changed" : "", "yellow"),
    segment(`   ${traits.join(" · ")}   `, "dim"),
    ...(note === "" ? podSegments(block) : [segment(note, "yellow")]),
  ];
}

export interface Table {
  readonly head: Line;
  readonly body: readonly Line[];
  /** Index in the body of the first changed block's title; `undefined` when nothing changed. */
  readonly firstChange: number | undefined;
}

/** The table. Columns are as wide as their widest text, which the head shares. */
export function tableLines(blocks: readonly Block[]): Table {
  const head: Line[] = [
    [segment("  ADDRESS", "dim")],
    [segment("")],
    ...positions.map((position): Line => [segment(columnTitles[position].toUpperCase(), "dim")]),
  ];
  const rows = blocks.map((block) => ({ block, rows: block.rows.map(rowCells) }));
  const all = [head, ...rows.flatMap((item) => item.rows)];
  const widths = head.map((_, column) => Math.max(...all.map((cells) => widthOf(cells[column] ?? []))) + GAP);
  const join = (cells: readonly Line[]): Line => cells.flatMap((cell, column) => padLine(cell, widths[column] ?? 0));
  const body: Line[] = [];
  let firstChange: number | undefined;
  for (const item of rows) {
    if (body.length > 0) body.push([]);
    if (item.block.isChanged) firstChange ??= body.length;
    body.push(titleLine(item.block), ...item.rows.map(join));
  }
  return { head: join(head), body, firstChange };
}

/** One line for each cell that is not as it must be. */
export function failureLines(blocks: readonly Block[]): Line[] {
  return blocks.flatMap((block) =>
    block.rows.flatMap(({ target, cells }) =>
      positions.flatMap((position): Line[] => {
        const judgement = cells.get(position)?.judgement;
        if (judgement === undefined || judgement.isRight) return [];
        const where = `${block.title} ${target.kind} ${socketText(target.address, target.number)} ${columnTitles[position]}`;
        return [[segment("✗ ", "red", "bold"), segment(`${where}: `, "bold"), segment(judgement.detail)]];
      }),
    ),
  );
}

/** `✓ 148 as expected · 1204 requests`. */
export function summaryLine(blocks: readonly Block[]): Line {
  const { right, wrong, pending, requests } = totalsOf(blocks);
  return [
    segment(`✓ ${right} as expected`, "green"),
    ...(wrong > 0 ? [segment(" · "), segment(`✗ ${wrong} not as expected`, "red", "bold")] : []),
    ...(pending > 0 ? [segment(` · ${pending} being asked`, "dim")] : []),
    segment(` · ${requests} requests`, "dim"),
  ];
}
