/** Pods by their names, from what objects say of them: Pods themselves, and the endpoints of slices. Pure. */
import type { EndpointSliceRecord, PodRecord } from "../cluster/objects.ts";
import { familyOf, type IpAddress, type IpFamily } from "../net/ip.ts";

export interface KnownPod {
  /** `namespace/name` */
  readonly name: string;
  /** Empty when it is not known. */
  readonly nodeName: string;
  /** Of both families, in the order in which they were found. */
  readonly addresses: readonly IpAddress[];
}

/** What pods are found in. */
export interface PodSources {
  readonly endpointSlices: readonly EndpointSliceRecord[];
  readonly pods?: readonly PodRecord[];
}

/** All pods that the objects name, by `namespace/name`. What a Pod says of itself goes before what slices say of it. */
export function knownPods({ endpointSlices, pods = [] }: PodSources): ReadonlyMap<string, KnownPod> {
  const known = new Map<string, KnownPod>();
  for (const { endpoints } of endpointSlices) {
    for (const { pod, address, nodeName } of endpoints) {
      if (pod === undefined) continue;
      const before = known.get(pod);
      if (before?.addresses.includes(address) === true) continue;
      known.set(pod, { name: pod, nodeName, addresses: [...(before?.addresses ?? []), address] });
    }
  }
  for (const { namespace, name, nodeName, addresses } of pods) {
    const pod = `${namespace}/${name}`;
    // One that is only just being made has no address yet, but perhaps an endpoint that has been given out.
    if (addresses.length > 0) known.set(pod, { name: pod, nodeName, addresses });
  }
  return known;
}

/** Its address of a family. */
export function addressOfPod({ addresses }: KnownPod, family: IpFamily): IpAddress | undefined {
  return addresses.find((address) => familyOf(address) === family);
}
