/** A model of service ports for tests of the backend, and the rig that syncs it. */
import type { Endpoint } from "../../../model/endpoint.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { servicePortName } from "../../../model/service-port-name.ts";
import { DeclaredServices } from "../../../model/testing/declared-services.ts";
import { makeEndpoint, makeServicePort } from "../../../model/testing/records.ts";
import { servicePortChains } from "../names.ts";
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
    if (endpoints !== undefined) this.setEndpoints(port.name.key, endpoints);
    this.rig.touch(this.#declared.set(port));
  }

  setEndpoints(key: string, endpoints: readonly Endpoint[]): void {
    if (endpoints.length === 0) this.endpoints.delete(key);
    else
      this.endpoints.set(
        key,
        endpoints.toSorted((a, b) => (a.text < b.text ? -1 : 1)),
      );
    this.rig.touch([key]);
  }

  delete(key: string): void {
    this.endpoints.delete(key);
    this.rig.touch(this.#declared.delete(key));
  }
}

/** Port `p` of `ns/NAME`, TCP 80. */
export function port(name: string, clusterIP: string, overrides: Partial<ServicePort> = {}): ServicePort {
  const ip = makeEndpoint(clusterIP).ip;
  return makeServicePort({ name: servicePortName("ns", name, "p", "TCP"), clusterIP: ip, ...overrides });
}

export function local(address: string): Endpoint {
  return makeEndpoint(address, 80, { isLocal: true });
}

export function remote(address: string): Endpoint {
  return makeEndpoint(address, 80);
}

/** The chain of the Cluster policy. */
export function clusterChain({ name }: ServicePort): string {
  return servicePortChains(name).cluster;
}
