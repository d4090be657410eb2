/** A history of one address family in the ipvs mode: objects, model, and the backend on a kernel in memory. */

import type { SyncOutcome } from "../../src/contract/backend.ts";
import { silentLogger } from "../../src/logging/logger.ts";
import { ProxyState } from "../../src/model/proxy-state.ts";
import { ip } from "../../src/model/testing/records.ts";
import { type RealServerKey, type VirtualServerKey, virtualServerText } from "../../src/modes/ipvs/kernel/ipvs.ts";
import { BackendRig, type BackendRigOptions } from "../../src/modes/ipvs/testing/backend-rig.ts";
import { MemoryNode } from "../../src/modes/ipvs/testing/memory-node.ts";
import type { NodeState } from "../../src/modes/ipvs/testing/node-state.ts";
import { type IpAddress, type IpFamily, joinHostPort } from "../../src/net/ip.ts";
import { SyncDriver } from "../../testkit/dataplane/sync-driver.ts";
import { NODE_NAME, type Step } from "./cluster-arbitrary.ts";
import { ObjectHistory } from "./object-history.ts";

/** An address that services have as an external one, and that the node has now and then. */
const SHARED_ADDRESS: Readonly<Record<IpFamily, string>> = { IPv4: "198.51.100.1", IPv6: "2001:db8:1::1" };

export class IpvsHistory {
  readonly rig: BackendRig;
  readonly node: MemoryNode;
  readonly state: ProxyState;
  readonly #family: IpFamily;
  readonly objects = new ObjectHistory();
  readonly #connections = new Map<string, readonly [VirtualServerKey, RealServerKey]>();
  readonly #onAddress: (address: IpAddress, isThere: boolean) => void;
  #hasSharedAddress = false;

  /** @param onAddress told, with a kernel of the test's own, when an address comes to `eth0` or goes. */
  constructor(
    family: IpFamily,
    options: Omit<BackendRigOptions, "family" | "node"> = {},
    onAddress: (address: IpAddress, isThere: boolean) => void = () => {},
  ) {
    this.#family = family;
    this.#onAddress = onAddress;
    this.node = new MemoryNode(family);
    const now = () => 0;
    this.state = new ProxyState({ family, nodeName: NODE_NAME, allowExternalIPs: true, now, log: silentLogger });
    this.rig = new BackendRig(new SyncDriver(this.state), { family, node: this.node, ...options });
  }

  /** Does everything but syncs. */
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
      case "addresses":
        this.#setSharedAddress(step.index === 1);
    }
  }

  sync(full: boolean): Promise<SyncOutcome> {
    this.rig.driver.touch(this.state.applyChanges().changedPorts);
    return this.rig.sync({ full });
  }

  /** A client connects to a real server, whichever there is. */
  async connect(index: number): Promise<void> {
    const { ipvs } = this.node;
    const servers = await ipvs.virtualServers(this.#family);
    const virtualServer = servers[index % servers.length];
    if (virtualServer === undefined) return;
    const realServers = (await ipvs.realServers(virtualServer)) ?? [];
    const realServer = realServers[index % realServers.length];
    if (realServer === undefined) return;
    ipvs.setConnections(virtualServer, realServer, { active: 1, inactive: 0 });
    this.#connections.set(pairText(virtualServer, realServer), [virtualServer, realServer]);
  }

  /** All connections end. */
  disconnect(): void {
    const none = { active: 0, inactive: 0 };
    for (const pair of this.#connections.values()) this.node.ipvs.setConnections(...pair, none);
    this.#connections.clear();
  }

  /** Whether a client is connected to `ip:port` of a virtual server. */
  isConnected(virtualServer: string, realServer: string): boolean {
    return this.#connections.has(`${virtualServer} ${realServer}`);
  }

  /** What one full sync of the same objects leaves on a node of the same addresses. */
  async fromNothing(): Promise<NodeState> {
    return await this.rig.fromNothing((node) => {
      if (this.#hasSharedAddress) node.links.addForeignAddress("eth0", ip(SHARED_ADDRESS[this.#family]), 128);
    });
  }

  #setSharedAddress(isThere: boolean): void {
    if (isThere === this.#hasSharedAddress) return;
    const address = ip(SHARED_ADDRESS[this.#family]);
    this.#hasSharedAddress = isThere;
    if (isThere) this.node.links.addForeignAddress("eth0", address, 128);
    else this.node.links.removeForeignAddress("eth0", address);
    this.#onAddress(address, isThere);
    this.rig.driver.requireFullSync();
  }
}

function pairText(virtualServer: VirtualServerKey, { address, port }: RealServerKey): string {
  return `${virtualServerText(virtualServer)} ${joinHostPort(address, port)}`;
}
