/** The destinations of a service port that the maps can tell apart. */
import { type FrontendAddress, ownedFrontends } from "../../model/frontend.ts";
import { onePerDestination } from "../../model/frontend-ownership.ts";
import type { ServicePort } from "../../model/service-port.ts";

/** What a service port owns, each destination once: the maps hold one value for it. Pure. */
export function destinationsOf(port: ServicePort): readonly FrontendAddress[] {
  return onePerDestination(port, ownedFrontends(port));
}
