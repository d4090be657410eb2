/** The ports that a user lets the proxy listen on (`--proxy-port-range`): reference legacy-modes.md §1.1. */

/** Both ends included. A range that begins at 0 means whatever port the system gives. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export const ANY_PORT: PortRange = { first: 0, last: 0 };

const HIGHEST_PORT = 65_535;
const FORMS = /^(\d{1,5})(?:([-+])(\d{1,5}))?$/;

/** Parses nothing, `N`, `A-B` or `A+LENGTH` (LENGTH ports after A). Pure. @returns `undefined` for anything else. */
export function parsePortRange(text: string): PortRange | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return ANY_PORT;
  const [, start, sign, end] = FORMS.exec(trimmed) ?? [];
  if (start === undefined) return undefined;
  const first = Number(start);
  const last = end === undefined ? first : Number(end) + (sign === "+" ? first : 0);
  if (last < first || last > HIGHEST_PORT) return undefined;
  return first === 0 ? ANY_PORT : { first, last };
}

/** `N` or `A-B`; `any` for any. Pure. */
export function portRangeText({ first, last }: PortRange): string {
  if (first === 0) return "any";
  return first === last ? String(first) : `${first}-${last}`;
}
