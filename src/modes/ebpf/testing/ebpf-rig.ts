/** The eBPF backend over in-memory kernels, driven as the proxier drives it. */
import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import type { SyncDriver } from "../../../../testkit/dataplane/sync-driver.ts";
import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import { interpret } from "../../../../testkit/fakes/bpf/interpreter.ts";
import { BpfMachine, elementsOf, memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { systemClock } from "../../../async/clock.ts";
import "../../../async/testing/test-yielder.ts";
import type { Bpf, BpfLink, BpfMap } from "../../../kernel/bpf/bpf.ts";
import { BpfError } from "../../../kernel/bpf/bpf-error.ts";
import { putNumber } from "../../../kernel/bpf/layout.ts";
import type { Program } from "../../../kernel/bpf/map-definition.ts";
import type { Disconnection, StaleSocket } from "../../../kernel/sock-diag/disconnect-udp.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import type { IpAddress } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { BackendRig } from "../../nftables/testing/backend-rig.ts";
import { EbpfBackend } from "../backend.ts";
import { SOCK_ADDR } from "../socket-balancer/testing/test-programs.ts";
import { SocketPath } from "../socket-path.ts";
import { HURRIED } from "./hurried-clock.ts";
import { testPods } from "./test-pods.ts";

export const CGROUP = "/cgroup";

/** Errors to inject; each function is called before the kernel call. */
export interface BpfFaults {
  createMap?: ((name: string) => string | undefined) | undefined;
  loadProgram?: ((name: string) => string | undefined) | undefined;
  attach?: (() => string | undefined) | undefined;
  update?: ((map: string, key: Uint8Array) => string | undefined) | undefined;
  addresses?: (() => string | undefined) | undefined;
}

export class EbpfRig {
  readonly packetPath: BackendRig;
  readonly bpf: Bpf;
  readonly backend: EbpfBackend;
  readonly log: LogLine[] = [];
  readonly faults: BpfFaults = {};
  readonly metrics = { attached: 0, passedPorts: 0, disconnected: 0 };
  /** Why UDP sockets cannot be told that their endpoint is gone; tests may change it. */
  obstacle: string | undefined;
  /** Cookies of pods' network namespaces, and why none can be entered; tests may change them. */
  pods: readonly bigint[] = [];
  podObstacle: string | undefined;
  /** What UDP sockets are connected to; tests may change it. */
  udpPeers: ReadonlyMap<bigint, string> = new Map();
  /** The outcome for each socket to be disconnected. */
  disconnects: (socket: StaleSocket) => Disconnection = () => "disconnected";
  readonly disconnections: StaleSocket[] = [];
  /** Resolves when disconnecting ends. @default at once */
  disconnecting: Promise<void> | undefined;
  /** Whether the host's addresses are being watched. */
  isWatching = false;
  /** Tests may change it between syncs with {@link changeAddresses}. */
  hostAddresses: readonly IpAddress[] = [];
  nowMs = 0;
  /** The kernel's clock. */
  monotonicNs = 0n;
  /** How often the backend asked where a program is attached. */
  linkQuestions = 0;
  #mapWrites = 0;
  readonly #maps = new Map<string, BpfMap>();
  #connect4: readonly [Program, readonly BpfMap[]] | undefined;
  #onAddressChange: () => void = () => {};
  readonly #stop = new AbortController();
  readonly machine = new BpfMachine(new Map([[CGROUP, 5n]]));

  /** @param isHurried makes periodic checks run all the time. */
  constructor(
    driver: SyncDriver,
    { hasCgroup = true, isHurried = false, validForMs = 600_000, rememberedSockets = 32_768 } = {},
  ) {
    this.packetPath = new BackendRig(driver, { layout: "Flat" });
    this.bpf = this.#faulty(memoryBpf(this.machine));
    const sockets = new SocketPath({
      family: "IPv4",
      bpf: this.bpf,
      cgroup: hasCgroup ? { ok: true, path: CGROUP } : { ok: false, reason: "there is no cgroup to attach to" },
      nodeName: "node-a",
      nodePortAddresses: nodePortAddresses("IPv4", ["192.168.0.0/24"]),
      programs: () => ({ hostCookie: 1n }),
      pods: testPods(
        () => this.pods,
        () => this.podObstacle,
      ),
      validForMs,
      rememberedSockets,
      monotonicNs: () => this.monotonicNs,
      identity: () => ({ owner: 1n, start: 1n }),
      disconnector: {
        obstacle: async () => this.obstacle,
        disconnect: async (sockets) => {
          if (this.disconnecting !== undefined) await this.disconnecting;
          this.disconnections.push(...sockets);
          return sockets.map(this.disconnects);
        },
      },
      udpPeers: async () => ({ peers: this.udpPeers, isOfAll: true }),
      localAddresses: async () => {
        const code = this.faults.addresses?.();
        if (code !== undefined) throw new Error(`addresses: as the test wants it: ${code}`);
        return this.hostAddresses;
      },
      addressWatch: {
        watch: (onChange, signal) => {
          this.#onAddressChange = onChange;
          this.isWatching = true;
          return new Promise((resolve) =>
            signal.addEventListener("abort", () => {
              this.isWatching = false;
              resolve();
            }),
          );
        },
      },
      metrics: {
        attached: {
          set: (value) => {
            this.metrics.attached = value;
          },
        },
        disconnected: {
          inc: (count) => {
            this.metrics.disconnected += count;
          },
        },
        passedPorts: {
          set: (value) => {
            this.metrics.passedPorts = value;
          },
        },
      },
      log: recordingLogger(this.log),
      clock: { ...(isHurried ? HURRIED : systemClock), monotonicMs: () => this.nowMs },
    });
    this.backend = new EbpfBackend(this.packetPath.backend, sockets);
  }

  /** A map of the backend, by name. */
  mapNamed(name: string): BpfMap | undefined {
    return this.#maps.get(name);
  }

  /** Watches as the proxier does, until the test ends. @returns how many syncs were requested. */
  watch(t: { after(end: () => void): void }, onLost = () => {}): () => number {
    let asked = 0;
    t.after(() => this.#stop.abort());
    const watching = this.backend.monitor(onLost, this.#stop.signal, () => void asked++);
    watching.catch((error: unknown) => this.log.push({ level: "error", message: "watching failed", error, facts: {} }));
    return () => asked;
  }

  changeAddresses(addresses: readonly IpAddress[]): void {
    this.hostAddresses = addresses;
    this.#onAddressChange();
  }

  /** Connects a UDP socket to an IPv4 address. @returns where the program redirects it. */
  connectUdp(socketCookie: bigint, address: string, port: number, netnsCookie = 1n): string {
    return this.connect("UDP", address, port, { socketCookie, netnsCookie });
  }

  /** Connects a socket to an IPv4 address. @returns where the program redirects it, or the errno. */
  connect(
    protocol: "TCP" | "UDP",
    address: string,
    port: number,
    { socketCookie = 1n, netnsCookie = 1n } = {},
  ): string {
    const [program, maps] = this.#connect4 ?? [];
    if (program === undefined || maps === undefined) return address;
    const context = new Uint8Array(SOCK_ADDR.size);
    const { userIp4, userPort } = SOCK_ADDR.fields;
    context.set(address.split(".").map(Number), userIp4.at);
    putNumber(context, userPort, port);
    putNumber(context, SOCK_ADDR.fields.protocol, PROTOCOL_NUMBERS[protocol]);
    const elements = new Map(maps.map((map) => [map.definition.name, elementsOf(map)]));
    const { result, returnValue } = interpret(program, context, elements, {
      socketCookie,
      netnsCookie,
      monotonicNs: () => this.monotonicNs,
    });
    if (result === 0n) return `fails with ${returnValue ?? "EPERM"}`;
    return context.slice(userIp4.at, userIp4.at + 4).join(".");
  }

  takeMapWrites(): number {
    const writes = this.#mapWrites;
    this.#mapWrites = 0;
    return writes;
  }

  #faulty(bpf: Bpf): Bpf {
    const fail = (code: string | undefined): void => {
      if (code !== undefined) throw new BpfError(code as `E${string}`, `bpf: as the test wants it: ${code}`);
    };
    return {
      ...bpf,
      createMap: (definition) => {
        fail(this.faults.createMap?.(definition.name));
        const map = this.#countWrites(bpf.createMap(definition));
        this.#maps.set(definition.name, map);
        return map;
      },
      loadProgram: (program, place, maps) => {
        fail(this.faults.loadProgram?.(program.name));
        if (program.name === "kpts_connect4") this.#connect4 = [program, maps ?? []];
        return bpf.loadProgram(program, place, maps);
      },
      attach: (program, hook, cgroup) => {
        fail(this.faults.attach?.());
        return this.#countQuestions(bpf.attach(program, hook, cgroup));
      },
    };
  }

  /** Changes the link object itself, for the same reason. */
  #countQuestions(link: BpfLink): BpfLink {
    const get = (): bigint => {
      this.linkQuestions++;
      return Reflect.get(Object.getPrototypeOf(link), "cgroupId", link);
    };
    return Object.defineProperty(link, "cgroupId", { get });
  }

  /** Overrides methods of the map object itself, because programs refer to it. */
  #countWrites(map: BpfMap): BpfMap {
    const { update, delete: remove } = map;
    map.update = (key, value) => {
      const code = this.faults.update?.(map.definition.name, key);
      if (code !== undefined) throw new BpfError(code as `E${string}`, `bpf: as the test wants it: ${code}`);
      this.#mapWrites++;
      update.call(map, key, value);
    };
    map.delete = (key) => {
      const isThere = remove.call(map, key);
      if (isThere) this.#mapWrites++;
      return isThere;
    };
    return map;
  }
}

/** A cluster without Services, and a backend that is closed when the test ends. */
export function rig(t: { after(end: () => void): void }) {
  const cluster = new TestCluster();
  const made = new EbpfRig(cluster.driver);
  t.after(() => void made.backend.close());
  return { cluster, rig: made, sync: (full = false) => cluster.driver.sync(made.backend, { full }) };
}
