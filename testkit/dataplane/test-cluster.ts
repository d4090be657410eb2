/** A model of service ports that a test declares one by one, and the driver that passes its changes to a backend. */
import type { Endpoint } from "../../src/model/endpoint.ts";
import type { ServicePort } from "../../src/model/service-port.ts";
import { servicePortName } from "../../src/model/service-port-name.ts";
import { DeclaredServices } from "../../src/model/testing/declared-services.ts";
import { makeEndpoint, makeServicePort } from "../../src/model/testing/records.ts";
import { type ModelView, SyncDriver } from "./sync-driver.ts";

export class TestCluster implements ModelView {
  readonly #declared = new DeclaredServices();
  readonly endpoints = new Map<string, readonly Endpoint[]>();
  readonly driver = new SyncDriver(this);

  get services(): ReadonlyMap<string, ServicePort> {
    return this.#declared.services;
  }

  /** As declared; {@link TestCluster.services} has what each port owns of that. */
  get declared(): ReadonlyMap<string, ServicePort> {
    return this.#declared.declared;
  }

  /** Adds or replaces a port; keeps its endpoints if none are given. */
  set(port: ServicePort, endpoints?: readonly Endpoint[]): void {
    if (endpoints !== undefined) this.setEndpoints(port, endpoints);
    this.driver.touch(this.#declared.set(port));
  }

  setEndpoints({ name: { key } }: ServicePort, endpoints: readonly Endpoint[]): void {
    if (endpoints.length === 0) this.endpoints.delete(key);
    else this.endpoints.set(key, sortedEndpoints(endpoints));
    this.driver.touch([key]);
  }

  delete({ name: { key } }: Pick<ServicePort, "name">): void {
    this.endpoints.delete(key);
    this.driver.touch(this.#declared.delete(key));
  }
}

/** In the model's order. */
export function sortedEndpoints(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  return endpoints.toSorted((a, b) => (a.text < b.text ? -1 : 1));
}

/** Port `p` of `ns/NAME`, TCP 80 unless overridden. */
export function port(name: string, clusterIP: string, overrides: Partial<ServicePort> = {}): ServicePort {
  const { protocol = "TCP" } = overrides;
  const made = makeServicePort({
    name: servicePortName("ns", name, "p", protocol),
    clusterIP: makeEndpoint(clusterIP).ip,
    ...overrides,
  });
  const isExternallyAccessible = made.nodePort !== 0 || made.externalIPs.length + made.loadBalancerVIPs.length > 0;
  return { ...made, isExternallyAccessible };
}

/** An endpoint on this node, port 8080. */
export function local(address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return makeEndpoint(address, 8080, { isLocal: true, ...overrides });
}

/** An endpoint on another node, port 8080. */
export function remote(address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return makeEndpoint(address, 8080, overrides);
}
