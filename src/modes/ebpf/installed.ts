/** What the maps hold for a service port, and the values of its frontends. */

import { type FrontendAddress, onePerDestination, ownedFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { EndpointList } from "./socket-balancer/endpoint-lists.ts";
import { frontendValue, HOST_ONLY, LEFT_ALONE, NO_ENDPOINTS } from "./socket-balancer/maps.ts";
import type { SocketPlan, Treatment } from "./socket-plan.ts";

/** The parts of {@link Installed}. */
interface Parts {
  readonly port: ServicePort;
  readonly treatments: SocketPlan["treatments"];
  readonly cluster?: EndpointList | undefined;
  readonly local?: EndpointList | undefined;
  readonly isUncertain?: boolean;
}

/** Also serves as the Cluster policy's list, which nearly all ports have: an object more for each of 100,000 ports is 5 MB. */
export class Installed implements Required<Parts> {
  readonly port: ServicePort;
  readonly treatments: SocketPlan["treatments"];
  readonly local: EndpointList | undefined;
  /** A write of its frontends failed halfway: they may refer to these lists or to older ones. */
  readonly isUncertain: boolean;
  readonly id: number;
  /** −1: no list. */
  readonly base: number;
  readonly count: number;
  readonly held: number;

  constructor({ port, treatments, cluster, local, isUncertain = false }: Parts) {
    this.port = port;
    this.treatments = treatments;
    this.local = local;
    this.isUncertain = isUncertain;
    this.id = cluster?.id ?? 0;
    this.base = cluster?.base ?? -1;
    this.count = cluster?.count ?? 0;
    this.held = cluster?.held ?? 0;
  }

  get cluster(): EndpointList | undefined {
    return this.base < 0 ? undefined : this;
  }

  /** The same, but it is not known what its frontends refer to. */
  uncertain(changed: Partial<Parts> = {}): Installed {
    const { port, treatments, cluster, local } = this;
    return new Installed({ port, treatments, cluster, local, ...changed, isUncertain: true });
  }
}

/** Frontends that a service port owns, one per destination: the maps hold one value for each destination. */
export function destinationsOf(port: ServicePort): readonly FrontendAddress[] {
  return onePerDestination(port, ownedFrontends(port));
}

/** The service port's list that a frontend refers to. */
export const LISTS: Readonly<Record<Treatment, "cluster" | "local" | "nothing">> = {
  pass: "nothing",
  leave: "nothing",
  refuse: "nothing",
  cluster: "cluster",
  "cluster-for-host": "cluster",
  local: "local",
};

/** A frontend's flags. */
const FLAGS: Readonly<Partial<Record<Treatment, number>>> = {
  leave: LEFT_ALONE,
  refuse: NO_ENDPOINTS,
  "cluster-for-host": HOST_ONLY,
};

export function listFor(treatment: Treatment, installed: Installed): EndpointList | undefined {
  const to = LISTS[treatment];
  return to === "nothing" ? undefined : installed[to];
}

/** Whether no frontend changes its value and all are certain. The usual case: an endpoint was replaced. */
export function isSame(before: Installed, after: Installed): boolean {
  return (
    !before.isUncertain &&
    before.port === after.port &&
    before.treatments === after.treatments &&
    isSameList(before.cluster, after.cluster) &&
    isSameList(before.local, after.local)
  );
}

const isSameList = (one: EndpointList | undefined, two: EndpointList | undefined): boolean =>
  one === two ||
  (one?.base === two?.base && one?.count === two?.count && one?.held === two?.held && one?.id === two?.id);

/** The value of a frontend whose treatment is not `pass`. */
export function frontendValueFor(treatment: Treatment, installed: Installed): Uint8Array {
  const { base = 0, count = 0, id = 0, held = 0 } = listFor(treatment, installed) ?? {};
  const { sessionAffinity, stickyMaxAgeSeconds } = installed.port;
  const affinitySeconds = sessionAffinity === "ClientIP" ? stickyMaxAgeSeconds : 0;
  return frontendValue({ base, count, id, held, flags: FLAGS[treatment] ?? 0, affinitySeconds });
}
