/**
 * `--forms`: what iptables-restore needs for the same change told in different ways. For small changes our difference
 * against upstream's form, which rewrites the shared chains of the whole cluster; for everything, one transaction against
 * several. Each pair takes turns in the same namespace, so that noise meets both.
 */
import { writeFileSync } from "node:fs";
import type { PlanFacts } from "../src/dataplane/iptables/plan-options.ts";
import { planServicePort } from "../src/dataplane/iptables/plan-service-port.ts";
import { planStatic } from "../src/dataplane/iptables/plan-static.ts";
import { deltaPayload, droppedChains, type OwnerChange } from "../src/dataplane/shared/iptables-rules/delta-payload.ts";
import { fullPayload } from "../src/dataplane/shared/iptables-rules/full-payload.ts";
import { type SpelledRules, spell } from "../src/dataplane/shared/iptables-rules/owner-rules.ts";
import { type Payload, textsOf } from "../src/dataplane/shared/iptables-rules/payload.ts";
import type { ProxyState } from "../src/model/proxy-state.ts";
import { benchService, benchSlice } from "./cluster.ts";
import type { BackEnd, SmallChange } from "./figures.ts";
import { restoreAlone } from "./iptables.ts";
import { type Namespace, withNamespace } from "./namespace.ts";
import { benchConfig, benchState } from "./subject.ts";
import { median, ms, size, table } from "./table.ts";

/** Ports in one transaction of the split form. */
const PORTS_PER_TRANSACTION = 100;

const CONFIG = benchConfig();
const FACTS: PlanFacts = {
  zone: undefined,
  nodePortIPs: { kind: "all" },
  counters: { ctStateInvalid: false, localhostNodePorts: false },
  isLargeCluster: true,
};
const STATIC = planStatic(CONFIG, FACTS);

/** The payloads of a cluster that changes. */
class Forms {
  readonly #endpointsEach: number;
  readonly #state: ProxyState = benchState();
  readonly #ports = new Map<string, SpelledRules>();
  readonly #generations = new Map<number, number>();

  constructor(services: number, endpointsEach: number) {
    this.#endpointsEach = endpointsEach;
    for (let index = 0; index < services; index += 1) this.#put(index, 0);
    for (const key of this.#state.applyChanges().changedPorts) this.#plan(key);
  }

  full(portsPerTransaction?: number): Payload {
    return fullPayload({
      plan: STATIC,
      ports: this.#ports,
      ...(portsPerTransaction !== undefined && { portsPerTransaction }),
    });
  }

  /** Makes the change and tells it in both forms. */
  change(kind: SmallChange, index: number): { readonly ours: Payload; readonly upstream: Payload } {
    const before = new Map(this.#ports);
    if (kind === "service removed") this.#state.onService({ kind: "delete", object: benchService(index) });
    else this.#put(index, (this.#generations.get(index) ?? 0) + (kind === "endpoint replaced" ? 1 : 0));
    const changes: OwnerChange[] = [];
    for (const owner of this.#state.applyChanges().changedPorts) {
      changes.push({ owner, before: before.get(owner), after: this.#plan(owner) });
    }
    return { ours: deltaPayload(changes), upstream: this.#rewritten(changes) };
  }

  #put(index: number, generation: number): void {
    this.#generations.set(index, generation);
    this.#state.onService({ kind: "add", object: benchService(index) });
    this.#state.onEndpointSlice({ kind: "add", object: benchSlice(index, this.#endpointsEach, generation) });
  }

  #plan(key: string): SpelledRules | undefined {
    const port = this.#state.services.get(key);
    if (port === undefined) {
      this.#ports.delete(key);
      return undefined;
    }
    const plan = spell(planServicePort(port, this.#state.endpoints.get(key) ?? [], CONFIG, FACTS));
    this.#ports.set(key, plan);
    return plan;
  }

  /** Shared chains in full, own chains of changed ports only (reference iptables-operation.md §9.3). */
  #rewritten(changes: readonly OwnerChange[]): Payload {
    const changed = new Set(changes.map(({ owner }) => owner));
    const ports = [...this.#ports].map(([owner, plan]) => {
      const written = changed.has(owner) ? plan : { ...plan, ownChains: "", ownRules: "", ownRuleCount: 0 };
      return [owner, written] as const;
    });
    return fullPayload({ plan: STATIC, ports, staleChains: changes.flatMap(droppedChains) });
  }
}

interface FormTimes {
  readonly bytes: number;
  /** Undefined stands for a run that was cut off. */
  readonly runsMs: readonly (number | undefined)[];
}

class Stopwatch {
  readonly #namespace: Namespace;
  readonly #backEnd: BackEnd;
  readonly #file: string;
  readonly #limitMs: number;

  constructor(namespace: Namespace, backEnd: BackEnd, file: string, limitMs: number) {
    this.#namespace = namespace;
    this.#backEnd = backEnd;
    this.#file = file;
    this.#limitMs = limitMs;
  }

  async time(payload: Payload): Promise<FormTimes> {
    const text = [...textsOf(payload.transactions)].join("");
    writeFileSync(this.#file, text);
    const took = await restoreAlone(this.#namespace, this.#backEnd, this.#file, this.#limitMs);
    return { bytes: text.length, runsMs: [took?.wallMs] };
  }
}

function row(backEnd: BackEnd, services: number, what: string, form: string, times: readonly FormTimes[]): string[] {
  const runs = times.flatMap(({ runsMs }) => runsMs);
  const done = runs.filter((run) => run !== undefined);
  const text = done.length === 0 ? "cut off" : ms(median(done));
  const range = done.length > 1 ? `${ms(Math.min(...done))}–${ms(Math.max(...done))}` : "";
  return [what, backEnd, String(services), form, size(median(times.map(({ bytes }) => bytes))), text, range];
}

async function smallChanges(stopwatch: Stopwatch, forms: Forms, backEnd: BackEnd, services: number, rounds: number) {
  const rows: string[][] = [];
  const kinds: readonly [SmallChange, (round: number) => number][] = [
    ["endpoint replaced", (round) => (round * 7919) % services],
    ["service added", (round) => services + round],
    ["service removed", (round) => services + round],
  ];
  for (const [kind, indexOf] of kinds) {
    const ours: FormTimes[] = [];
    const upstream: FormTimes[] = [];
    for (let round = 0; round < 2 * rounds; round += 1) {
      const payloads = forms.change(kind, indexOf(round));
      const isOurs = round % 2 === 0;
      (isOurs ? ours : upstream).push(await stopwatch.time(isOurs ? payloads.ours : payloads.upstream));
    }
    rows.push(row(backEnd, services, kind, "ours", ours), row(backEnd, services, kind, "upstream's", upstream));
  }
  return rows;
}

/** Measures and prints. @param file for payloads. @param rounds of every small change in each form. */
export async function compareForms(
  backEnds: readonly BackEnd[],
  sizes: readonly number[],
  endpointsEach: number,
  options: { readonly file: string; readonly limitMs: number; readonly rounds: number },
): Promise<void> {
  const { file, limitMs, rounds } = options;
  const rows: string[][] = [];
  for (const services of sizes) {
    const forms = new Forms(services, endpointsEach);
    const split = forms.full(PORTS_PER_TRANSACTION);
    const fullForms: readonly [string, Payload][] = [
      ["one transaction", forms.full()],
      [`${PORTS_PER_TRANSACTION} each`, split],
    ];
    for (const backEnd of backEnds) {
      process.stderr.write(`comparing forms of payload with ${services} services and ${backEnd}…\n`);
      for (const [name, payload] of fullForms) {
        await withNamespace(async (space) => {
          const stopwatch = new Stopwatch(space, backEnd, file, limitMs);
          rows.push(row(backEnd, services, "everything, first", name, [await stopwatch.time(payload)]));
          rows.push(row(backEnd, services, "everything, again", name, [await stopwatch.time(payload)]));
        });
      }
      await withNamespace(async (space) => {
        const stopwatch = new Stopwatch(space, backEnd, file, limitMs);
        await stopwatch.time(backEnd === "nft" ? forms.full(PORTS_PER_TRANSACTION) : forms.full());
        rows.push(...(await smallChanges(stopwatch, forms, backEnd, services, rounds)));
      });
    }
  }
  rows.sort((a, b) => (a[0] === b[0] ? 0 : String(a[0]) < String(b[0]) ? -1 : 1));
  console.log("iptables-restore, ms: median and range of its runs.");
  console.log(table(["change", "back end", "services", "form", "sent", "median", "range"], rows));
}
