/** Service ports that a contract test declares by number for a backend, passed on as by the proxier. */

import type { Backend, SyncOutcome } from "../../src/contract/backend.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { ip, makeEndpoint, makeServicePort } from "../../src/model/testing/records.ts";
import type { DrivenSync } from "./sync-driver.ts";
import { TestCluster } from "./test-cluster.ts";

export class ContractCluster {
  readonly #cluster = new TestCluster();

  /** Adds or replaces `ns/s<number>:p`, with this many endpoints. */
  set(number: number, endpoints: number, overrides: Partial<ServicePort> = {}): ServicePort {
    const name = servicePortName("ns", `s${number}`, "p", "TCP");
    const port = makeServicePort({ name, clusterIP: ip(`10.96.0.${number}`), ...overrides });
    const list = Array.from({ length: endpoints }, (_, index) => makeEndpoint(`10.180.${number}.${index + 1}`, 8080));
    this.#cluster.set(port, list);
    return port;
  }

  delete(port: ServicePort): void {
    this.#cluster.delete(port);
  }

  /** Syncs the test's backend. */
  sync(backend: Backend, options?: DrivenSync): Promise<SyncOutcome> {
    return this.#cluster.driver.sync(backend, options);
  }

  /** One full sync of another backend, which does not affect the test's. */
  async syncOther(backend: Backend): Promise<void> {
    await this.#cluster.driver.syncOther(backend);
  }
}
