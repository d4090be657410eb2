/** Port ranges as text (`--proxy-port-range`): reference userspace.md §1.1. */

/** Both ends are included. A range that begins at 0 means any port that the system assigns. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export const ANY_PORT: PortRange = { first: 0, last: 0 };

type PortRangeResult =
  | { readonly ok: true; readonly range: PortRange }
  | { readonly ok: false; readonly error: string };

const HIGHEST_PORT = 65_535;
const FORMS = /^(\d{1,5})(?:([-+])(\d{1,5}))?$/;

/** Reads an empty text, `N`, `A-B` or `A+LENGTH` (LENGTH ports after A). */
export function parsePortRange(text: string): PortRangeResult {
  const trimmed = text.trim();
  if (trimmed === "") return { ok: true, range: ANY_PORT };
  const [, start, sign, end] = FORMS.exec(trimmed) ?? [];
  if (start === undefined) return { ok: false, error: "use N, FIRST-LAST or FIRST+LENGTH" };
  const first = Number(start);
  const last = end === undefined ? first : Number(end) + (sign === "+" ? first : 0);
  if (last < first) return { ok: false, error: `the last port, ${last}, is below the first, ${first}` };
  if (last > HIGHEST_PORT) return { ok: false, error: `there is no port ${last}` };
  return { ok: true, range: first === 0 ? ANY_PORT : { first, last } };
}

/** `N` or `A-B`; `any` for any. */
export function portRangeText({ first, last }: PortRange): string {
  if (first === 0) return "any";
  return first === last ? String(first) : `${first}-${last}`;
}
