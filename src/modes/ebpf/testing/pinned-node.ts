/** A node that runs one proxy process after another: pins outlive them, and each process can be killed before any step. */
import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import { assemble } from "../../../../testkit/fakes/bpf/encode.ts";
import { BpfMachine, memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import type { MemoryMap } from "../../../../testkit/fakes/bpf/memory-map.ts";
import "../../../async/testing/test-yielder.ts";
import type { Bpf, BpfLink, BpfMap } from "../../../kernel/bpf/bpf.ts";
import { BpfError } from "../../../kernel/bpf/bpf-error.ts";
import type { Hook } from "../../../kernel/bpf/hooks.ts";
import type { Program } from "../../../kernel/bpf/map-definition.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import { ipFromBytes } from "../../../net/ip.ts";
import { EbpfBackend } from "../backend.ts";
import { BACKEND_VALUE, type BalancerMaps, frontendWords } from "../socket-balancer/maps.ts";
import { SocketPath } from "../socket-path.ts";
import { SocketPins } from "../socket-pins.ts";
import { HURRIED } from "./hurried-clock.ts";
import { NO_PACKET_PATH } from "./no-packet-path.ts";
import { testPods } from "./test-pods.ts";

export const CGROUP = "/cgroup";
export const PIN_FOLDER = "/bpf/kube-proxy-ts/1";

/** The hooks of the node's programs; only a few, because tests load programs often. */
export const NODE_HOOKS = ["getpeername4", "sendmsg4", "connect4"] as const;

/** Passes all connections and refers to all maps. @param build makes the programs of two builds differ. */
function shortProgram(hook: Hook, maps: BalancerMaps, build: bigint): Program {
  const all = Object.values(maps);
  return assemble(
    `kpts_${hook}`,
    [
      { kind: "load-wide", destination: "r0", value: build },
      ...all.map(({ name }) => ({ kind: "load-map", destination: "r1", map: name }) as const),
      { kind: "alu", operation: "mov", bits: 64, destination: "r0", source: 1 },
      { kind: "exit" },
    ],
    all,
  );
}

export interface ProcessOptions {
  /** The process is killed after this many steps. @default never */
  readonly steps?: number;
  /** Makes the programs differ. @default 1 */
  readonly build?: bigint;
  readonly cgroup?: string;
  /** The call that the kernel rejects. */
  readonly refused?: "createMap" | "loadProgram" | "attach";
  /** @default true */
  readonly isPinned?: boolean;
  /** Enables counting, with capacity for this many counts. @default counting is off */
  readonly counts?: number;
}

export interface ProxyProcess {
  readonly backend: EbpfBackend;
  readonly log: readonly LogLine[];
  /** What the process did to the kernel, in order. */
  readonly steps: readonly string[];
  readonly isDead: boolean;
  /** Closes everything that the process had open; its later steps fail. */
  kill(): void;
}

export class Killed extends Error {
  override readonly name = "Killed";
}

/** Calls that change something. */
const STEPS = {
  bpf: ["createMap", "loadProgram", "attach"],
  pins: ["makeFolder", "pin", "move", "remove"],
  map: ["update", "updateAll", "delete"],
  link: ["replace", "close"],
} as const;

export class PinnedNode {
  readonly machine = new BpfMachine(new Map([[CGROUP, 5n]]));
  /** Cookies of connected UDP sockets that were disconnected. */
  readonly told: bigint[] = [];
  /** The running process's hook. */
  #onStep: (what: string) => void = () => {};

  /** @param t makes stores to mapped memory count as steps while the test runs. */
  constructor(t: { mock: { method(of: object, name: string, by: (...args: never[]) => unknown): void } }) {
    const { store } = Atomics;
    t.mock.method(Atomics, "store", (memory: BigUint64Array, at: number, value: bigint) => {
      this.#onStep("store");
      return store(memory, at, value);
    });
  }

  start({
    steps: limit = Infinity,
    build = 1n,
    cgroup = CGROUP,
    isPinned = true,
    counts,
    refused,
  }: ProcessOptions = {}): ProxyProcess {
    const memory = memoryBpf(this.machine);
    const steps: string[] = [];
    const log: LogLine[] = [];
    let isDead = false;
    const onStep = (what: string): void => {
      if (steps.length >= limit) isDead = true;
      if (isDead) throw new Killed(`before ${what}`);
      if (what === refused) throw new BpfError("EPERM", `bpf: ${what}: EPERM`);
      steps.push(what);
    };
    this.#onStep = onStep;
    const bpf = observed(memory, onStep);
    const sockets = new SocketPath({
      family: "IPv4",
      bpf,
      cgroup: { ok: true, path: cgroup },
      pins: isPinned ? new SocketPins(bpf.pins, PIN_FOLDER, "IPv4") : undefined,
      nodeName: "node-a",
      nodePortAddresses: nodePortAddresses("IPv4", ["192.168.0.0/24"]),
      programs: () => ({ hostCookie: 1n, counted: counts === undefined ? "None" : "Frontends" }),
      ...(counts !== undefined && { rememberedSockets: counts }),
      localAddresses: async () => [ipFromBytes(Uint8Array.of(192, 168, 0, 2))],
      addressWatch: { watch: (_, signal) => new Promise((end) => signal.addEventListener("abort", () => end())) },
      pods: testPods(),
      validForMs: 600_000,
      metrics: { attached: { set() {} }, passedPorts: { set() {} }, disconnected: { inc() {} } },
      disconnector: {
        obstacle: async () => undefined,
        disconnect: async (sockets) => {
          this.told.push(...sockets.map(({ cookie }) => cookie));
          return sockets.map(() => "disconnected");
        },
      },
      udpPeers: async () => ({ peers: new Map(), isOfAll: false }),
      log: recordingLogger(log),
      assemble: (_, maps) => NODE_HOOKS.map((hook) => [hook, shortProgram(hook, maps, build)]),
      leastRoom: { frontends: 8, slots: 16, backends: 16 },
      clock: { ...HURRIED, monotonicMs: () => 0 },
      monotonicNs: process.hrtime.bigint,
      identity: () => ({ owner: 1n, start: 1n }),
    });
    const backend = new EbpfBackend(NO_PACKET_PATH, sockets);
    return {
      backend,
      log,
      steps,
      get isDead() {
        return isDead;
      },
      kill() {
        isDead = true;
        memory.end();
      },
    };
  }

  /** The maps that a hook's programs use, once per program, in order. */
  mapsAt(hook: Hook): readonly ReadonlyMap<string, MemoryMap>[] {
    return [...this.machine.links]
      .filter((link) => link.isThere && link.hook === hook)
      .map(({ program }) => program.maps);
  }

  /** Where connections are redirected now, by frontend: endpoints of the first program at connect4. */
  leads(): ReadonlyMap<string, readonly string[]> {
    const [maps] = this.mapsAt("connect4");
    const chosen = maps === undefined ? [] : [...chosenBy(maps)];
    return new Map(chosen.map(([frontend, endpoints]) => [frontend, [...endpoints.keys()].sort()]));
  }

  /** What a record of a client or socket may speak of, by frontend and endpoint: `list 2, backend 0, identity …`. */
  records(): ReadonlyMap<string, string> {
    const [maps] = this.mapsAt("connect4");
    const chosen = maps === undefined ? [] : [...chosenBy(maps)];
    return new Map(
      chosen.flatMap(([frontend, endpoints]) =>
        Array.from(endpoints, ([endpoint, record]) => [`${frontend} ${endpoint}`, record] as const),
      ),
    );
  }
}

function chosenBy(maps: ReadonlyMap<string, MemoryMap>): ReadonlyMap<string, ReadonlyMap<string, string>> {
  const chosen = new Map<string, ReadonlyMap<string, string>>();
  const slots = new BigUint64Array(maps.get("slots4")?.memory ?? new ArrayBuffer());
  const backends = Buffer.from(maps.get("backends4")?.memory ?? new ArrayBuffer());
  const { size, fields } = BACKEND_VALUE.IPv4;
  for (const [key, value] of maps.get("frontends4")?.entries() ?? []) {
    const { base, count, id } = frontendWords(value);
    const endpoints = new Map<string, string>();
    for (let at = base; at < base + count; at++) {
      const number = Number(slots[at] ?? 0n);
      const backend = number * size;
      if (backends.readUInt32LE(backend + fields.id.at) !== id) continue;
      const ip = ipFromBytes(Uint8Array.from(backends.subarray(backend, backend + 4)));
      const identity = backends.readBigUInt64LE(backend + fields.id.at);
      const record = `list ${id}, backend ${number}, identity ${identity}`;
      endpoints.set(`${ip}:${backends.readUInt16BE(backend + fields.port.at)}`, record);
    }
    const address = ipFromBytes(Uint8Array.from(key.subarray(0, 4)));
    chosen.set(`${address}:${Buffer.from(key).readUInt16BE(4)}`, endpoints);
  }
  return chosen;
}

/** Overrides methods of the same objects, because the in-memory kernel knows them. */
function observed(bpf: Bpf, onStep: (what: string) => void): Bpf {
  const watch = <T extends object>(
    what: T | undefined,
    names: readonly string[],
    label: (name: string) => string,
  ): T | undefined => {
    for (const name of what === undefined ? [] : names) {
      const work: unknown = Reflect.get(what ?? {}, name);
      if (typeof work !== "function") continue;
      Reflect.set(what ?? {}, name, (...args: unknown[]) => {
        onStep(label(name));
        return Reflect.apply(work, what, args);
      });
    }
    return what;
  };
  // Renewals happen all the time and do not change what is kept.
  const map = (made: BpfMap): BpfMap =>
    made.definition.name === "valid_until4"
      ? made
      : (watch(made, STEPS.map, (name) => `${name} ${made.definition.name}`) ?? made);
  const link = (made: BpfLink): BpfLink => watch(made, STEPS.link, (name) => `${name} link`) ?? made;
  const { pins } = bpf;
  const watchedPins = {
    ...watch({ ...pins }, STEPS.pins, (name) => name),
    map: (...args: Parameters<typeof pins.map>) => {
      const found = pins.map(...args);
      return found && map(found);
    },
    link: (...args: Parameters<typeof pins.link>) => {
      const found = pins.link(...args);
      return found && link(found);
    },
  };
  const opening: Bpf = {
    ...bpf,
    createMap: (definition) => map(bpf.createMap(definition)),
    attach: (...args) => link(bpf.attach(...args)),
    pins: { ...pins, ...watchedPins },
  };
  return watch(opening, STEPS.bpf, (name) => name) ?? opening;
}
