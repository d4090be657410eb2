/** A history of one IP family in the nftables mode: objects, model, and the backend on a kernel in memory. */

import type { SyncOutcome } from "../../src/contract/backend.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { ProxyState } from "../../src/model/proxy-state.ts";
import { ip } from "../../src/model/testing/records.ts";
import { BackendRig, type BackendRigOptions } from "../../src/modes/nftables/testing/backend-rig.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { PROTOCOLS } from "../../src/net/protocol.ts";
import { SyncDriver } from "../../testkit/dataplane/sync-driver.ts";
import { NODE_NAME, type Step } from "./cluster-arbitrary.ts";
import { ObjectHistory } from "./object-history.ts";

const NODES = {
  IPv4: { address: ip("10.200.0.2"), serviceCIDRs: ["10.96.0.0/12"] },
  IPv6: { address: ip("fd00:200::2"), serviceCIDRs: ["fd00:96::/108"] },
} as const;

export class NftablesHistory {
  readonly rig: BackendRig;
  readonly state: ProxyState;
  readonly #family: IpFamily;
  readonly objects = new ObjectHistory();

  constructor(family: IpFamily, options: Omit<BackendRigOptions, "family"> = {}) {
    this.#family = family;
    const now = () => 0;
    this.state = new ProxyState({ family, nodeName: NODE_NAME, allowExternalIPs: true, now, log: silentLogger });
    this.rig = new BackendRig(new SyncDriver(this.state), { family, ...options });
  }

  /** Rejects node ports on loopback addresses, as v1.38 does. */
  refuseAtLocalhost(): void {
    this.rig.rejectedAtLocalhost = PROTOCOLS;
    this.rig.restart();
  }

  /** Applies every step except syncs. */
  apply(step: Exclude<Step, { kind: "sync" }>): void {
    const { rig, state } = this;
    switch (step.kind) {
      case "write-service":
      case "delete-service":
      case "write-slice":
      case "delete-slice":
        this.objects.apply(step, state);
        return;
      case "zone":
        rig.driver.zone = step.zone;
        rig.driver.requireFullSync();
        return;
      case "addresses": {
        const { address, serviceCIDRs } = NODES[this.#family];
        rig.node.nodePortIPs = step.index === 0 ? { kind: "all" } : { kind: "ips", ips: [address] };
        rig.driver.serviceCIDRs = step.index === 0 ? [] : serviceCIDRs;
        // Only full syncs read addresses.
        rig.driver.requireFullSync();
      }
    }
  }

  sync(full: boolean): Promise<SyncOutcome> {
    this.rig.driver.touch(this.state.applyChanges().changedPorts);
    return this.rig.sync({ full });
  }
}
