/** An iptables backend over an in-memory kernel, with what it sent, counted and logged. */
import { TestCluster } from "../../../../testkit/dataplane/test-cluster.ts";
import { MemoryIptables } from "../../../../testkit/fakes/iptables/memory-iptables.ts";
import "../../../async/testing/test-yielder.ts";
import { type Logger, silentLogger } from "../../../logging/logger.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { servicePortName } from "../../../model/service-port-name.ts";
import { ip, makeEndpoint, makeServicePort } from "../../../model/testing/records.ts";
import { IptablesBackend, type IptablesBackendOptions } from "../backend.ts";

/** IPv4 on node-a, with upstream's defaults. */
export const CONFIG: IptablesBackendOptions["config"] = {
  family: "IPv4",
  nodeName: "node-a",
  nodeIP: ip("192.168.0.2"),
  masqueradeMark: 1 << 14,
  hashSeed: 1,
  masqueradeAll: false,
  detector: { kind: "none" },
  localhostNodePorts: true,
  conntrackLiberal: false,
};

/** A backend over an in-memory kernel and a test cluster. */
export class BackendBench {
  readonly kernel: MemoryIptables;
  readonly backend: IptablesBackend;
  readonly warnings: string[] = [];
  readonly errors: string[] = [];
  readonly counts = { restoreFailures: 0, partialRestoreFailures: 0 };
  readonly totals = { filter: 0, nat: 0 };
  readonly last = { filter: 0, nat: 0 };
  readonly payloads: string[] = [];
  isIntact: (() => Promise<string>) | undefined;
  readonly #cluster = new TestCluster();

  constructor(options: Partial<IptablesBackendOptions> = {}, kernel = new MemoryIptables("IPv4")) {
    this.kernel = kernel;
    const restore = kernel.restore.bind(kernel);
    kernel.restore = async (payload, restoreOptions) => {
      const text = [...payload].join("");
      this.payloads.push(text);
      await restore([text], restoreOptions);
    };
    const log: Logger = {
      ...silentLogger,
      warn: (message, facts) => void this.warnings.push(`${message} ${JSON.stringify(facts)}`),
      error: (message, error) => void this.errors.push(`${message}: ${String(error)}`),
      with: () => log,
    };
    this.backend = new IptablesBackend({
      config: CONFIG,
      iptables: kernel,
      counters: undefined,
      nodePortIPs: async () => ({ kind: "all" }),
      metrics: {
        restoreFailures: { inc: () => this.#count("restoreFailures") },
        partialRestoreFailures: { inc: () => this.#count("partialRestoreFailures") },
        setTotal: (table, rules) => {
          this.totals[table] = rules;
        },
        setLast: (table, rules) => {
          this.last[table] = rules;
        },
      },
      monitor: async (isIntact) => {
        this.isIntact = isIntact;
      },
      log,
      nowMs: () => 0,
      ...options,
    });
  }

  /** Sets a service port with this many endpoints; `undefined` removes it. */
  set(name: string, port: Partial<ServicePort> | undefined, endpoints = 1): void {
    const portName = servicePortName("ns", name, "", "TCP");
    const declared = makeServicePort({ name: portName, ...port });
    if (port === undefined) {
      this.#cluster.delete(declared);
      return;
    }
    const addresses = Array.from({ length: endpoints }, (_, index) => `10.0.${name.length}.${index + 1}`);
    this.#cluster.set(
      declared,
      addresses.map((address) => makeEndpoint(address)),
    );
  }

  touch(keys: Iterable<string>): void {
    this.#cluster.driver.touch(keys);
  }

  sync(full = false) {
    return this.#cluster.driver.sync(this.backend, { full });
  }

  #count(name: keyof BackendBench["counts"]): void {
    this.counts[name] += 1;
  }

  /** The payloads since the last call. */
  sent(): string[] {
    return this.payloads.splice(0);
  }
}

/** Gives a service port the nth cluster IP. */
export const clusterIP = (number: number) => ({ clusterIP: ip(`172.16.0.${number}`) });
