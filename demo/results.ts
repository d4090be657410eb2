/** What the demo knows of each service port: the data that the table shows. */
import type { IpFamily } from "../src/net/ip.ts";
import type { Judgement } from "./judgement.ts";
import type { Position, Target } from "./targets.ts";

export interface Cell {
  /** `undefined` while the requests are under way. */
  judgement: Judgement | undefined;
  /** What the last pass found, to show until this one knows. */
  previous: Judgement | undefined;
  requests: number;
  /** What must be met, in words; empty until it was asked for. */
  expected: string;
}

/** An endpoint of a service port in one family: where it runs, whether it may answer, how many answers came from it. */
export interface PodShare {
  readonly place: string;
  readonly state: string;
  answers: number;
}

export interface Row {
  readonly target: Target;
  /** Positions that cannot ask this address are absent. */
  readonly cells: Map<Position, Cell>;
}

/** One service port with all its addresses. */
export interface Block {
  readonly title: string;
  /** `NodePort`, `external Local`, … */
  readonly traits: readonly string[];
  readonly rows: readonly Row[];
  /** The endpoints of the families that the service has, by name. */
  readonly pods: Map<IpFamily, Map<string, PodShare>>;
  /** Why the port cannot be asked; empty when it can. */
  readonly note: string;
  /** Differs whenever the service port or its endpoints do. */
  readonly fingerprint: string;
  /** Whether it differs from what it was before the last change; false at the start. */
  isChanged: boolean;
}

export interface Totals {
  readonly right: number;
  readonly wrong: number;
  readonly pending: number;
  readonly requests: number;
}

/** Counts cells and requests. Pure. */
export function totalsOf(blocks: readonly Block[]): Totals {
  const totals = { right: 0, wrong: 0, pending: 0, requests: 0 };
  for (const block of blocks) {
    for (const row of block.rows) {
      for (const { judgement, requests } of row.cells.values()) {
        totals.requests += requests;
        if (judgement === undefined) totals.pending += 1;
        else if (judgement.isRight) totals.right += 1;
        else totals.wrong += 1;
      }
    }
  }
  return totals;
}

function cellKey(block: Block, { target }: Row, position: Position): string {
  return `${block.title} ${target.kind} ${target.address} ${target.number} ${position}`;
}

/**
 * Gives the cells of a new table what the last one knew of them, and marks the blocks that changed.
 *
 * @param keepsMarks whether the marks stay where nothing has changed. @returns the new table.
 */
export function keepPrevious(blocks: Block[], last: readonly Block[], keepsMarks = true): Block[] {
  const known = new Map<string, Judgement | undefined>();
  const prints = new Map(last.map(({ title, fingerprint }) => [title, fingerprint]));
  const marks = new Map(last.map(({ title, isChanged }) => [title, isChanged]));
  const isSame =
    blocks.length === last.length && blocks.every((block) => prints.get(block.title) === block.fingerprint);
  for (const block of blocks) {
    block.isChanged = isSame
      ? keepsMarks && marks.get(block.title) === true
      : prints.get(block.title) !== block.fingerprint;
  }
  for (const block of last) {
    for (const row of block.rows) {
      for (const [position, cell] of row.cells)
        known.set(cellKey(block, row, position), cell.judgement ?? cell.previous);
    }
  }
  for (const block of blocks) {
    for (const row of block.rows) {
      for (const [position, cell] of row.cells) cell.previous = known.get(cellKey(block, row, position));
    }
  }
  return blocks;
}

/** Opens the cells with a wrong judgement again, so that the next pass asks for them. */
export function reopenWrong(blocks: readonly Block[]): void {
  for (const { rows } of blocks) {
    for (const { cells } of rows) {
      for (const cell of cells.values()) {
        if (cell.judgement?.isRight !== false) continue;
        cell.previous = cell.judgement;
        cell.judgement = undefined;
      }
    }
  }
}
