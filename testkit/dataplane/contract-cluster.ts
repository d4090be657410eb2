/** Service ports that a contract test declares for a backend, handed over as the proxier does: changed keys are kept until a sync resolves. */
import type { Endpoint } from "../../src/model/endpoint.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { DeclaredServices } from "../../src/model/testing/declared-services.ts";
import { ip, makeEndpoint, makeServicePort } from "../../src/model/testing/records.ts";
import type { Backend, SyncOutcome } from "../../src/sync/backend.ts";

export class ContractCluster {
  readonly #declared = new DeclaredServices();
  readonly #endpoints = new Map<string, readonly Endpoint[]>();
  readonly #pending = new Set<string>();

  /** Adds or replaces `ns/s<number>:p`, with so many endpoints. */
  set(number: number, endpoints: number, overrides: Partial<ServicePort> = {}): ServicePort {
    const name = servicePortName("ns", `s${number}`, "p", "TCP");
    const port = makeServicePort({ name, clusterIP: ip(`10.96.0.${number}`), ...overrides });
    const list = Array.from({ length: endpoints }, (_, index) => makeEndpoint(`10.180.${number}.${index + 1}`, 8080));
    if (list.length === 0) this.#endpoints.delete(name.key);
    else this.#endpoints.set(name.key, list);
    this.#touch(this.#declared.set(port));
    return port;
  }

  delete({ name }: ServicePort): void {
    this.#endpoints.delete(name.key);
    this.#touch(this.#declared.delete(name.key));
  }

  /** Syncs the backend of the test. */
  async sync(
    backend: Backend,
    { full = false, signal = new AbortController().signal }: { full?: boolean; signal?: AbortSignal } = {},
  ): Promise<SyncOutcome> {
    const outcome = await this.#syncOnce(backend, full, signal);
    this.#pending.clear();
    return outcome;
  }

  /** One full sync of another backend, which changes nothing for that of the test. */
  async syncOther(backend: Backend): Promise<void> {
    await this.#syncOnce(backend, true, new AbortController().signal);
  }

  #syncOnce(backend: Backend, full: boolean, signal: AbortSignal): Promise<SyncOutcome> {
    return backend.sync(
      {
        isFullSync: full,
        services: this.#declared.services,
        endpoints: this.#endpoints,
        endpointCount: [...this.#endpoints.values()].reduce((sum, list) => sum + list.length, 0),
        changedPorts: new Set(this.#pending),
        zone: undefined,
        serviceCIDRs: [],
      },
      signal,
    );
  }

  #touch(keys: Iterable<string>): void {
    for (const key of keys) this.#pending.add(key);
  }
}
