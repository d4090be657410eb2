/**
 * `npm run bench -- kinds`: every kind of change to a Service, in the flat layout, in the compatible one, and in the
 * ebpf mode's maps: the first Service of a kind, one more, and the last one to leave it. Only this bench shows what
 * depends on the size of the table.
 */
import type { EndpointSliceRecord, ServiceRecord } from "../src/model/objects.ts";
import { NO_PACKET_PATH } from "../src/modes/ebpf/testing/no-packet-path.ts";
import { LAYOUT_NAMES } from "../src/modes/nftables/layout-name.ts";
import { ownCgroup } from "./backends.ts";
import { benchService, benchSlice, NODE_NAME } from "./cluster.ts";
import type { Bench } from "./driver.ts";
import { EbpfSubject } from "./ebpf-subject.ts";
import { cpuMsOf } from "./memory.ts";
import { NftSubject } from "./nftables-subject.ts";
import type { Subject } from "./subject.ts";
import { atMost, type Figures, Notes, numberOf, spread, timed, type Verdict } from "./table.ts";

/** Limit of a change's cost relative to the same change beside the fewest Services, and a time too short to be judged. */
const GROWTH = 2;
const LEAST_MS = 2;

/** For the ebpf mode only the maps: its rules are those of the flat layout. */
const SUBJECTS = [...LAYOUT_NAMES, "ebpf-maps"] as const;

interface KindsTask {
  readonly services: number;
  readonly endpointsEach: number;
  readonly layout: (typeof SUBJECTS)[number];
  readonly rounds: number;
  /** Whether all Services are load balancers with source ranges. */
  readonly areRestricted: boolean;
}

interface Form {
  readonly service?: Partial<ServiceRecord>;
  /** @default that of every Service */
  readonly endpoints?: number;
  /** The first ones are on this node. @default 0 */
  readonly local?: number;
}

function loadBalancer(index: number, more: Partial<ServiceRecord> = {}): Partial<ServiceRecord> {
  const ip = `172.${16 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
  return { type: "LoadBalancer", loadBalancerIngress: [{ ip, ipMode: "VIP" }], ...more };
}

/** A Service's own ranges, as many users have them. */
function rangesOf(index: number): readonly string[] {
  return [`192.${index % 256}.0.0/16`, `198.18.${index % 256}.0/24`];
}

/** By name: what a Service becomes in a round. Each round has other numbers of endpoints and other timeouts. */
const KINDS: Readonly<Record<string, (index: number, round: number) => Form>> = {
  "0 endpoints": () => ({ endpoints: 0 }),
  "1 to 64 endpoints": (_index, round) => ({ endpoints: 1 + ((7 + 11 * round) % 64) }),
  "65 to 1,000 endpoints": (_index, round) => ({ endpoints: 65 + ((187 * round) % 936) }),
  "affinity with a new timeout": (_index, round) => ({
    service: { sessionAffinity: "ClientIP", sessionAffinityTimeoutSeconds: 100 + round },
  }),
  "node port": (index) => ({ service: { type: "NodePort", ports: portsOf(index) } }),
  "node port with affinity": (index, round) => ({
    service: {
      type: "NodePort",
      ports: portsOf(index),
      sessionAffinity: "ClientIP",
      sessionAffinityTimeoutSeconds: 500 + round,
    },
  }),
  "external address": (index) => ({ service: { externalIPs: [`203.0.113.${index % 250}`] } }),
  "load-balancer address": (index) => ({ service: loadBalancer(index) }),
  "source ranges": (index) => ({ service: loadBalancer(index, { loadBalancerSourceRanges: rangesOf(index) }) }),
  "external policy Local, endpoints here": (index) => ({
    service: loadBalancer(index, { externalTrafficPolicy: "Local", ports: portsOf(index) }),
    local: 2,
  }),
  "external policy Local, none here": (index) => ({
    service: loadBalancer(index, { externalTrafficPolicy: "Local", ports: portsOf(index) }),
  }),
  "internal policy Local, endpoints here": () => ({ service: { internalTrafficPolicy: "Local" }, local: 3 }),
  "internal policy Local, none here": () => ({ service: { internalTrafficPolicy: "Local" } }),
};

function portsOf(index: number): ServiceRecord["ports"] {
  return benchService(index).ports.map((port) => ({ ...port, nodePort: 30_000 + (index % 2000) }));
}

/** In this process's network namespace. */
function subjectOf({ layout, endpointsEach }: KindsTask): Subject {
  if (layout !== "ebpf-maps") return new NftSubject(endpointsEach, layout);
  return new EbpfSubject(endpointsEach, NO_PACKET_PATH, ownCgroup());
}

/** The Services besides those that are always there. */
class Changed {
  readonly #subject: Subject;
  readonly #had = new Map<number, { readonly service: ServiceRecord; readonly slice: EndpointSliceRecord }>();
  #version = 1;

  constructor(subject: Subject) {
    this.#subject = subject;
  }

  /** Changes a Service in the model and commits. @returns milliseconds. */
  async set(index: number, form: Form): Promise<number> {
    const { service, slice } = this.#objects(index, form);
    const { state } = this.#subject;
    const had = this.#had.get(index);
    this.#had.set(index, { service, slice });
    return await timed(async () => {
      if (had === undefined) {
        state.onService({ kind: "add", object: service });
        state.onEndpointSlice({ kind: "add", object: slice });
      } else {
        state.onService({ kind: "update", old: had.service, object: service });
        state.onEndpointSlice({ kind: "update", old: had.slice, object: slice });
      }
      await this.#subject.syncChanges();
    });
  }

  #objects(index: number, { service = {}, endpoints = this.#subject.endpointsEach, local = 0 }: Form) {
    this.#version += 1;
    const slice = benchSlice(index, endpoints);
    const here = slice.endpoints.map((endpoint, at) => (at < local ? { ...endpoint, nodeName: NODE_NAME } : endpoint));
    return {
      service: { ...benchService(index), ...service },
      slice: { ...slice, endpoints: here, resourceVersion: String(this.#version) },
    };
  }
}

async function measure(task: KindsTask): Promise<Figures> {
  const { services, endpointsEach, rounds, areRestricted } = task;
  const notes = new Notes();
  const subject = subjectOf(task);
  subject.load(services);
  if (areRestricted) {
    for (let index = 0; index < services; index += 1) {
      const object = { ...benchService(index), ...loadBalancer(index, { loadBalancerSourceRanges: rangesOf(index) }) };
      subject.state.onService({ kind: "update", old: benchService(index), object });
    }
    subject.state.applyChanges();
  }
  notes.add("load", await timed(() => subject.fullSync()));
  const changed = new Changed(subject);
  const [first, second] = [services, services + 1];
  for (const index of [first, second]) await changed.set(index, {});
  for (const [kind, formOf] of Object.entries(KINDS)) {
    const edge: number[] = [];
    const other: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const form = formOf(first, round);
      if (form.endpoints === endpointsEach) continue;
      edge.push(await changed.set(first, form));
      other.push(await changed.set(second, formOf(second, round)), await changed.set(second, {}));
      edge.push(await changed.set(first, {}));
    }
    notes.add(edgeOf(kind), spread(edge));
    notes.add(`  one more or less of ${kind}`, spread(other));
  }
  if (subject instanceof NftSubject) {
    subject.restart();
    notes.add("restart, all compared, processor time", await cpuMsOf(() => subject.fullSync()));
  }
  return notes.figures;
}

const edgeOf = (kind: string): string => `first or last of ${kind}`;

export const bench: Bench = {
  name: "kinds",
  about: `Measures changes of every kind in both layouts of the nftables mode and in the maps of the ebpf mode, in throw-away network
namespaces. Needs root.
SERVICESxENDPOINTS; with a trailing r all of these Services are load balancers with source ranges.`,
  options: {
    quick: { help: "few repetitions" },
    sizes: { value: "NxN,…", initial: "1000x5,30000x5,5006x50,1000x5r,5006x5r", quick: "100x5,1000x5", help: "states" },
    rounds: { value: "N", initial: "20", quick: "3", help: "repetitions" },
    layouts: { value: "NAME,…", initial: SUBJECTS.join(","), help: "which" },
  },
  tasks(given) {
    const all = given.someOf("layouts", SUBJECTS).flatMap((layout) =>
      given.list("sizes").map((state) => {
        const [, services, endpointsEach, ranges] = /^(\d+)x(\d+)(r?)$/.exec(state) ?? [];
        if (services === undefined) throw new RangeError(`--sizes: ${JSON.stringify(state)} is not like 1000x5`);
        const task: KindsTask = {
          ...{ services: Number(services), endpointsEach: Number(endpointsEach), layout },
          ...{ rounds: given.whole("rounds"), areRestricted: ranges === "r" },
        };
        return [`${layout}, ${state}`, [task]] as const;
      }),
    );
    return Object.fromEntries(all);
  },
  judge,
  worker: measure,
};

/** p50: nothing costs more in a large table than in the run's smallest. The compatible layout grows, and is not judged by this. */
function judge(columns: Readonly<Record<string, Figures>>): readonly Verdict[] {
  return SUBJECTS.filter((layout) => layout !== "Compatible").flatMap((layout) => {
    const [small, ...larger] = Object.entries(columns).filter(([title]) => title.startsWith(layout));
    return larger.flatMap(([title, figures]) =>
      Object.keys(KINDS).map((kind) => {
        const [p50, before] = [figures, small?.[1]].map((some) => numberOf(some?.[edgeOf(kind)]) ?? 0);
        return atMost(`${title}: ${kind}`, p50 ?? 0, Math.max(GROWTH * (before ?? 0), LEAST_MS));
      }),
    );
  });
}
