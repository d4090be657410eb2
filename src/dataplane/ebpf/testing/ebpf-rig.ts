/** The eBPF backend over kernels in memory, driven as the proxier drives it. */
import { type LogLine, recordingLogger } from "../../../../testkit/dataplane/recording-logger.ts";
import type { SyncDriver } from "../../../../testkit/dataplane/sync-driver.ts";
import { memoryBpf } from "../../../../testkit/fakes/bpf/memory-bpf.ts";
import { testYielder } from "../../../async/testing/test-yielder.ts";
import type { Bpf, BpfMap } from "../../../kernel/bpf/bpf.ts";
import { BpfError } from "../../../kernel/bpf/bpf-error.ts";
import { nodePortAddresses } from "../../../model/node-port-addresses.ts";
import type { IpAddress } from "../../../net/ip.ts";
import { BackendRig } from "../../nftables/testing/backend-rig.ts";
import { EbpfBackend } from "../backend.ts";

export const CGROUP = "/cgroup";

/** What of the kernel fails, in a test: each is asked before the call. */
export interface BpfFaults {
  createMap?: ((name: string) => string | undefined) | undefined;
  loadProgram?: ((name: string) => string | undefined) | undefined;
  attach?: (() => string | undefined) | undefined;
  update?: ((map: string, key: Uint8Array) => string | undefined) | undefined;
}

export class EbpfRig {
  readonly packetPath: BackendRig;
  readonly bpf: Bpf;
  readonly backend: EbpfBackend;
  readonly log: LogLine[] = [];
  readonly faults: BpfFaults = {};
  readonly metrics = { attached: 0, passedPorts: 0 };
  /** May be changed between syncs; then call {@link changeAddresses}. */
  hostAddresses: readonly IpAddress[] = [];
  nowMs = 0;
  #mapWrites = 0;
  #onAddressChange: () => void = () => {};
  readonly #stop = new AbortController();

  constructor(driver: SyncDriver, { hasCgroup = true, detectsPods = true } = {}) {
    this.packetPath = new BackendRig(driver, { layout: "Flat" });
    this.bpf = this.#faulty(memoryBpf(new Map([[CGROUP, 5n]])));
    this.backend = new EbpfBackend({
      packetPath: this.packetPath.backend,
      bpf: this.bpf,
      cgroup: hasCgroup ? CGROUP : undefined,
      nodeName: "node-a",
      detectsPods,
      nodePortAddresses: nodePortAddresses("IPv4", ["192.168.0.0/24"]),
      programs: () => ({ hostCookie: 1n, isForHostOnly: false }),
      localAddresses: async () => this.hostAddresses,
      addressWatch: {
        watch: (onChange, signal) => {
          this.#onAddressChange = onChange;
          return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
        },
      },
      metrics: {
        attached: {
          set: (value) => {
            this.metrics.attached = value;
          },
        },
        passedPorts: {
          set: (value) => {
            this.metrics.passedPorts = value;
          },
        },
      },
      log: recordingLogger(this.log),
      nowMs: () => this.nowMs,
      yielder: testYielder,
    });
  }

  /** Watches as the proxier does, until the test ends. @returns how often a sync was asked for. */
  watch(t: { after(end: () => void): void }): () => number {
    let asked = 0;
    t.after(() => this.#stop.abort());
    const watching = this.backend.monitor(
      () => {},
      this.#stop.signal,
      () => void asked++,
    );
    watching.catch((error: unknown) => this.log.push({ level: "error", message: "watching failed", error, facts: {} }));
    return () => asked;
  }

  changeAddresses(addresses: readonly IpAddress[]): void {
    this.hostAddresses = addresses;
    this.#onAddressChange();
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
        return this.#countWrites(bpf.createMap(definition));
      },
      loadProgram: (program, place, maps) => {
        fail(this.faults.loadProgram?.(program.name));
        return bpf.loadProgram(program, place, maps);
      },
      attach: (program, hook, cgroup) => {
        fail(this.faults.attach?.());
        return bpf.attach(program, hook, cgroup);
      },
    };
  }

  /** The map itself, because programs know it; with other methods. */
  #countWrites(map: BpfMap): BpfMap {
    const { update, delete: remove } = map;
    map.update = (key, value, mode) => {
      const code = this.faults.update?.(map.definition.name, key);
      if (code !== undefined) throw new BpfError(code as `E${string}`, `bpf: as the test wants it: ${code}`);
      this.#mapWrites++;
      update.call(map, key, value, mode);
    };
    map.delete = (key) => {
      const isThere = remove.call(map, key);
      if (isThere) this.#mapWrites++;
      return isThere;
    };
    return map;
  }
}
