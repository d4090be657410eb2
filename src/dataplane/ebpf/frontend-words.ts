/** What the maps hold of a frontend, by how the connections to it are treated. Pure. */
import type { EndpointList } from "../../kernel/bpf/socket-balancer/endpoint-lists.ts";
import { type FrontendWords, HOST_ONLY, NO_ENDPOINTS } from "../../kernel/bpf/socket-balancer/maps.ts";
import type { FrontendKind } from "../../model/frontend.ts";
import type { WantedFrontend } from "./adopted-frontends.ts";
import type { Installed } from "./installed-ports.ts";
import type { Treatment } from "./socket-plan.ts";

/** Which list of a service port a frontend leads to. */
export const LISTS: Readonly<Record<Treatment, WantedFrontend["to"]>> = {
  pass: "nothing",
  refuse: "nothing",
  cluster: "cluster",
  "cluster-for-host": "cluster",
  local: "local",
};

const FLAGS: Readonly<Record<Treatment, number>> = {
  pass: 0,
  refuse: NO_ENDPOINTS,
  cluster: 0,
  "cluster-for-host": HOST_ONLY,
  local: 0,
};

export function listFor(treatment: Treatment, installed: Installed): EndpointList | undefined {
  const to = LISTS[treatment];
  return to === "nothing" ? undefined : installed[to];
}

/** Whether frontends of a kind say the same of both. */
export function isSameValue(before: Installed, after: Installed, kind: FrontendKind): boolean {
  const treatment = after.treatments[kind];
  if (before.treatments[kind] !== treatment) return false;
  if (before.port.stickyMaxAgeSeconds !== after.port.stickyMaxAgeSeconds) return false;
  return isSameList(listFor(treatment, before), listFor(treatment, after));
}

/** Whether all frontends say the same of both, and do say so. The usual case: an endpoint was replaced. */
export function isSame(before: Installed, after: Installed): boolean {
  return (
    before.isUncertain !== true &&
    before.port === after.port &&
    before.treatments === after.treatments &&
    isSameList(before.cluster, after.cluster) &&
    isSameList(before.local, after.local)
  );
}

const isSameList = (one: EndpointList | undefined, two: EndpointList | undefined): boolean =>
  one === two ||
  (one?.base === two?.base && one?.count === two?.count && one?.held === two?.held && one?.id === two?.id);

export function frontendWordsFor(treatment: Treatment, installed: Installed): FrontendWords {
  const list = listFor(treatment, installed);
  const { sessionAffinity, stickyMaxAgeSeconds } = installed.port;
  return {
    base: list?.base ?? 0,
    count: list?.count ?? 0,
    id: list?.id ?? 0,
    held: list?.held ?? 0,
    flags: FLAGS[treatment],
    affinitySeconds: sessionAffinity === "ClientIP" ? stickyMaxAgeSeconds : 0,
  };
}
