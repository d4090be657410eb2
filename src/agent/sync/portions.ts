/** Splits syncs of many ports: one Service can have ten thousand, and others must not wait for all of them. */
import { serviceOfKey } from "../../model/service-port-name.ts";

/** A Service that takes longer is logged. */
const COSTLY_MS = 1_000;
/** How long other changes should wait for a portion. */
const PORTION_MS = 150;
/** The assumed cost of a service port until it is measured. */
const FIRST_MS = 1;
/** With fewer, the fixed cost of a sync would dominate. */
const LEAST_PORTION = 50;

/** A Service that took long to program. */
export interface CostlyService {
  /** `namespace/name` */
  readonly service: string;
  readonly servicePorts: number;
  readonly milliseconds: number;
}

export interface PortPortion {
  readonly now: ReadonlySet<string>;
  readonly later: ReadonlySet<string>;
}

const NONE: ReadonlySet<string> = new Set();

export class Portions {
  /** The accumulated cost of Services whose ports come in several portions. */
  readonly #costs = new Map<string, { servicePorts: number; milliseconds: number }>();
  /** The cost of one service port in the last portion. */
  #eachMs = FIRST_MS;

  /** The next service ports, at most `most`: those of the Services with the fewest first. */
  first(ports: ReadonlySet<string>, most = Number.POSITIVE_INFINITY): PortPortion {
    if (ports.size <= most) return { now: ports, later: NONE };
    const size = Math.min(most, Math.max(Math.round(PORTION_MS / this.#eachMs), Math.min(LEAST_PORTION, most)));
    const byService = [...Map.groupBy(ports, serviceOfKey).values()].sort((a, b) => a.length - b.length);
    const all = byService.flat();
    return { now: new Set(all.slice(0, size)), later: new Set(all.slice(size)) };
  }

  /**
   * Divides the time that a portion took among its Services.
   *
   * @returns the finished Services that took longer than a second.
   */
  note({ now, later }: PortPortion, milliseconds: number): readonly CostlyService[] {
    this.#eachMs = later.size === 0 ? FIRST_MS : milliseconds / now.size;
    if (later.size === 0 && this.#costs.size === 0 && milliseconds < COSTLY_MS) return [];
    for (const [service, keys] of Map.groupBy(now, serviceOfKey)) {
      const known = this.#costs.get(service) ?? { servicePorts: 0, milliseconds: 0 };
      known.servicePorts += keys.length;
      known.milliseconds += (milliseconds * keys.length) / now.size;
      this.#costs.set(service, known);
    }
    const unfinished = new Set(Array.from(later, serviceOfKey));
    const done = [...this.#costs].filter(([service]) => !unfinished.has(service));
    for (const [service] of done) this.#costs.delete(service);
    return done.flatMap(([service, cost]) => (cost.milliseconds < COSTLY_MS ? [] : [{ service, ...cost }]));
  }
}
