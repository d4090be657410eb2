/** The proxy's own ports of a plan. A daemon takes any that is free; here they are counted, so that plans can be compared. */
import { parsePortRange } from "../../net/port-range.ts";
import type { Lane } from "./lanes.ts";
import type { LanePorts } from "./plan-portal-rules.ts";

/** Without a port range the counted ports begin here. */
const FIRST_PORT = 20_000;
const LAST_PORT = 65_535;

/** The ports of a range, in turn. */
export class FreePorts {
  readonly #last: number;
  #next: number;

  /** @param portRange of the configuration. */
  constructor(portRange: string) {
    const parsed = parsePortRange(portRange);
    const isSet = parsed.ok && parsed.range.first !== 0;
    const { first, last } = isSet ? parsed.range : { first: FIRST_PORT, last: LAST_PORT };
    this.#next = first;
    this.#last = last;
  }

  /** Takes ports that follow each other. @returns the first; undefined where too few are left, and none is then. */
  take(count: number): number | undefined {
    const first = this.#next;
    this.#next += count;
    return count > 0 && this.#next - 1 > this.#last ? undefined : first;
  }

  /** Takes one for each of these lanes. @returns undefined where too few are left. */
  takeFor(lanes: ReadonlySet<Lane>): LanePorts | undefined {
    const first = this.take(lanes.size);
    return first === undefined ? undefined : portsFrom(first, lanes);
  }
}

/** A port for each lane. */
export function portsFrom(first: number, lanes: ReadonlySet<Lane>): LanePorts {
  return Object.fromEntries(Array.from(lanes, (lane, index) => [lane, first + index]));
}
