/** Pods by name, from Pod objects and from the endpoints of EndpointSlices. */
import type { EndpointSliceRecord, PodRecord } from "../../model/objects.ts";
import { familyOf, type IpAddress, type IpFamily } from "../../net/ip.ts";

export interface KnownPod {
  /** `namespace/name` */
  readonly name: string;
  /** Empty if not known. */
  readonly nodeName: string;
  /** Of both families, in the order of discovery. */
  readonly addresses: readonly IpAddress[];
}

export interface PodSources {
  readonly endpointSlices: readonly EndpointSliceRecord[];
  readonly pods?: readonly PodRecord[];
}

/** All pods that the objects name, by `namespace/name`. Pod objects take precedence over slices. @param known those of others */
export function knownPods({ endpointSlices, pods = [] }: PodSources, known = new Map<string, KnownPod>()) {
  for (const { endpoints } of endpointSlices) {
    for (const { pod, address, nodeName } of endpoints) {
      if (pod === undefined) continue;
      const { addresses = [], nodeName: place = "" } = known.get(pod) ?? {};
      if (addresses.includes(address)) continue;
      known.set(pod, { name: pod, nodeName: nodeName || place, addresses: [...addresses, address] });
    }
  }
  for (const { namespace, name, nodeName, addresses } of pods) {
    const pod = `${namespace}/${name}`;
    // A new Pod has no address yet, but a slice may already list its endpoint.
    if (addresses.length > 0) known.set(pod, { name: pod, nodeName, addresses });
  }
  return known;
}

/** The names of pods by their addresses. */
export function podNames(known: ReadonlyMap<string, KnownPod>): ReadonlyMap<IpAddress, string> {
  return new Map([...known.values()].flatMap(({ name, addresses }) => addresses.map((one) => [one, name] as const)));
}

/** The pod's address of a family, if it has one. */
export function addressOfPod({ addresses }: KnownPod, family: IpFamily): IpAddress | undefined {
  return addresses.find((address) => familyOf(address) === family);
}
