/** A model of service ports for tests of the backend, and the rig that syncs it. */
import type { Endpoint } from "../../../model/endpoint.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { servicePortName } from "../../../model/service-port-name.ts";
import { DeclaredServices } from "../../../model/testing/declared-services.ts";
import { makeEndpoint, makeServicePort } from "../../../model/testing/records.ts";
import { BackendRig, type BackendRigOptions } from "./backend-rig.ts";

export class TestModel {
  readonly #declared = new DeclaredServices();
  readonly endpoints = new Map<string, readonly Endpoint[]>();
  readonly rig: BackendRig;

  constructor(options?: BackendRigOptions) {
    this.rig = new BackendRig(this, options);
  }

  get services(): ReadonlyMap<string, ServicePort> {
    return this.#declared.services;
  }

  /** Adds or replaces; without endpoints given, those that it has stay. */
  set(port: ServicePort, endpoints?: readonly Endpoint[]): void {
    if (endpoints !== undefined) this.setEndpoints(port, endpoints);
    this.rig.touch(this.#declared.set(port));
  }

  setEndpoints({ name: { key } }: ServicePort, endpoints: readonly Endpoint[]): void {
    if (endpoints.length === 0) this.endpoints.delete(key);
    else this.endpoints.set(key, sortedEndpoints(endpoints));
    this.rig.touch([key]);
  }

  delete({ name: { key } }: ServicePort): void {
    this.endpoints.delete(key);
    this.rig.touch(this.#declared.delete(key));
  }
}

/** As the model hands them over. */
export function sortedEndpoints(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  return endpoints.toSorted((a, b) => (a.text < b.text ? -1 : 1));
}

/** Port `p` of `ns/NAME`, TCP 80 unless said otherwise. */
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

export function local(address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return makeEndpoint(address, 8080, { isLocal: true, ...overrides });
}

export function remote(address: string, overrides: Partial<Endpoint> = {}): Endpoint {
  return makeEndpoint(address, 8080, overrides);
}
