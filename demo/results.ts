/** The results for each service port, which the table shows. */
import type { IpFamily } from "../src/net/ip.ts";
import type { Judgement } from "./judgement.ts";
import type { Position, Target } from "./targets.ts";

export interface Cell {
  /** Undefined while requests are pending. */
  judgement: Judgement | undefined;
  /** The judgement of the last pass, shown until this pass has one. */
  previous: Judgement | undefined;
  requests: number;
  /** The expectation in words; empty before the first request. */
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
  /** Without positions that cannot reach this address. */
  readonly cells: Map<Position, Cell>;
}

/** One service port with all its addresses. */
export interface Block {
  readonly title: string;
  /** `NodePort`, `external Local`, … */
  readonly traits: readonly string[];
  readonly rows: readonly Row[];
  /** The endpoints in each family of the service, by name. */
  readonly pods: Map<IpFamily, Map<string, PodShare>>;
  /** Why the port cannot be probed; empty if it can. */
  readonly note: string;
  /** Changes whenever the service port or its endpoints do. */
  readonly fingerprint: string;
  /** Whether the last change changed it; false at the start. */
  isChanged: boolean;
}

export interface Totals {
  readonly right: number;
  readonly wrong: number;
  readonly pending: number;
  readonly requests: number;
}

/** Counts cells and requests. */
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
 * Copies the last judgements into the cells of a new table, and marks the blocks that changed.
 *
 * @param keepsMarks whether marks stay if nothing has changed. @returns the new table.
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

/** Reopens the cells with a wrong judgement, so that the next pass retries them. */
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
