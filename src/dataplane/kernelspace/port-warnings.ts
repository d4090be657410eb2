/** Says once of each service port what it asks for and HNS cannot do. */
import type { Logger } from "../../logging/logger.ts";
import type { PlanWarning } from "./plan-service-port.ts";

const TEXTS: Readonly<Record<PlanWarning, string>> = {
  "mixed-target-ports":
    "The endpoints of a service port have several target ports, of which HNS knows one: the most frequent is served, and the others are left out",
  "source-ranges": "loadBalancerSourceRanges has no effect on Windows: HNS cannot tell clients apart",
  "local-policy-without-dsr":
    "externalTrafficPolicy Local counts as Cluster: this version of HNS has no direct server return",
  affinity: "sessionAffinity has no effect: this version of HNS does not have it",
};

export class PortWarnings {
  readonly #log: Logger;
  /** Those said and still true, by service port. */
  readonly #said = new Map<string, readonly PlanWarning[]>();
  readonly #told = new Set<string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  note(key: string, name: string, warnings: readonly PlanWarning[]): void {
    const said = this.#said.get(key) ?? [];
    for (const warning of warnings) {
      if (!said.includes(warning)) this.#log.warn(TEXTS[warning], { servicePortName: name });
    }
    if (warnings.length > 0) this.#said.set(key, warnings);
    else this.#said.delete(key);
  }

  forget(key: string): void {
    this.#said.delete(key);
  }

  /** A warning about anything else. @param what tells it from others. */
  tellOnce(what: string, message: string, facts: object): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.#log.warn(message, { ...facts });
  }
}
