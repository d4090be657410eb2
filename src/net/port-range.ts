/** A range of ports as a text says it. Pure. Reference legacy-modes.md §1.1. */
import { type Port, toPort } from "./ip.ts";

/** Ports from `from` to `to`, both included. */
export interface PortRange {
  readonly from: Port;
  readonly to: Port;
}

/** `range` is undefined for "any port". */
export type PortRangeResult =
  | { readonly ok: true; readonly range: PortRange | undefined }
  | { readonly ok: false; readonly error: string };

const SHAPE = /^(\d{1,5})(?:([-+])(\d{1,5}))?$/;

/**
 * Reads `N`, `A-B`, or `A+len`, which ends at `A + len`. An empty text, `0` and `0-0` mean any port. Blanks around the text
 * are ignored.
 */
export function parsePortRange(text: string): PortRangeResult {
  const trimmed = text.trim();
  if (trimmed === "") return { ok: true, range: undefined };
  const [, first = "", separator, second] = SHAPE.exec(trimmed) ?? [];
  if (first === "") return { ok: false, error: "use N, FIRST-LAST or FIRST+LENGTH" };
  const from = Number(first);
  const to = second === undefined ? from : separator === "+" ? from + Number(second) : Number(second);
  if (from === 0 && to === 0) return { ok: true, range: undefined };
  if (to < from) return { ok: false, error: `the last port, ${to}, is below the first, ${from}` };
  const [lowest, highest] = [toPort(from), toPort(to)];
  if (lowest === undefined || highest === undefined) return { ok: false, error: "ports are 1 to 65535" };
  return { ok: true, range: { from: lowest, to: highest } };
}
