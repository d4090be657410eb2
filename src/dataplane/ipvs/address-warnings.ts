/** What an operator should know of addresses that services share with the node or with others: said once for each port. */
import type { Logger } from "../../logging/logger.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { type Cidr, cidrContains, type IpAddress } from "../../net/ip.ts";
import { DUMMY_DEVICE } from "./names.ts";

export class AddressWarnings {
  readonly #excludeCIDRs: readonly Cidr[];
  readonly #log: Logger;
  #devices: ReadonlyMap<IpAddress, string> = new Map();
  /** By service port: what was said last. */
  readonly #said = new Map<string, string>();

  constructor(excludeCIDRs: readonly Cidr[], log: Logger) {
    this.#excludeCIDRs = excludeCIDRs;
    this.#log = log;
  }

  /** Looks at every service port. @param devices the device that has an address, kube-ipvs0 left out. */
  report(services: ReadonlyMap<string, ServicePort>, devices: ReadonlyMap<IpAddress, string>): void {
    this.#devices = devices;
    this.update(new Set([...services.keys(), ...this.#said.keys()]), services);
  }

  /** Looks at the service ports that changed. */
  update(keys: Iterable<string>, services: ReadonlyMap<string, ServicePort>): void {
    if (this.#excludeCIDRs.length + this.#devices.size === 0) return;
    for (const key of keys) {
      const port = services.get(key);
      if (port === undefined) this.#said.delete(key);
      else this.#look(key, port);
    }
  }

  #look(key: string, port: ServicePort): void {
    const { clusterIP, externalIPs, loadBalancerVIPs } = port;
    const hasExternal = externalIPs.length + loadBalancerVIPs.length > 0;
    // Most ports have nothing to report, and there are many of them.
    if (!hasExternal && this.#excludeCIDRs.length === 0 && !this.#devices.has(clusterIP)) return;
    const external = [...externalIPs, ...loadBalancerVIPs];
    const excluded = [clusterIP, ...external].filter((ip) => this.#excludeCIDRs.some((cidr) => cidrContains(cidr, ip)));
    const held = external.filter((ip) => this.#devices.has(ip));
    const clusterDevice = this.#devices.get(clusterIP);
    const warning = `${excluded.join()} ${held.join()} ${clusterDevice ?? ""}`;
    if (this.#said.get(key) === warning || warning === "  ") return;
    this.#said.set(key, warning);
    const servicePort = port.name.text;
    if (excluded.length > 0) {
      this.#log.warn(
        "excludeCIDRs has addresses of a service: they are served, but their virtual servers will stay when the service is gone",
        { servicePort, addresses: excluded.join(", ") },
      );
    }
    if (held.length > 0) {
      this.#log.info(`External addresses of a service are on another device and are not bound to ${DUMMY_DEVICE}`, {
        servicePort,
        addresses: held.map((ip) => `${ip} on ${this.#devices.get(ip)}`).join(", "),
      });
    }
    if (clusterDevice !== undefined) {
      this.#log.warn(`The cluster IP of a service is on another device, too, besides ${DUMMY_DEVICE}`, {
        servicePort,
        clusterIP,
        device: clusterDevice,
      });
    }
  }
}
