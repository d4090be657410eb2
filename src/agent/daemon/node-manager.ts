/**
 * This node's own Node object: at the start, waits until it has addresses (and pod CIDRs, if the local-traffic detector
 * needs them) and freezes both; afterwards, watches for changes that require a restart. Reference node.md §8.2, §8.3;
 * configuration.md §5.2.
 */

import type { Clock } from "../../async/clock.ts";
import type { Logger } from "../../logging/logger.ts";
import { nodeIPsOf } from "../../model/node-identity.ts";
import type { ObjectEvent } from "../../model/object-source.ts";
import { equalLists, type NodeRecord } from "../../model/objects.ts";
import type { IpAddress } from "../../net/ip.ts";

const NODE_IPS_WAIT_MS = 30_000;
const POD_CIDRS_WAIT_MS = 300_000;

export interface NodeManagerOptions {
  readonly nodeName: string;
  /** `detectLocalMode` is NodeCIDR. */
  readonly needsPodCIDRs: boolean;
  /**
   * Longest time for each of the two waits; 0 for a source that knows all its objects once it has synced.
   * @default upstream's 30 s for addresses, 5 min for pod CIDRs
   */
  readonly maxWaitMs?: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** The program must end with status 1: what it was built on is no longer true. Already logged. */
  readonly onFatal: (error: Error) => void;
}

/** What the program is built on; never changes while it runs. */
export interface NodeFacts {
  /** Primary address first, then at most one of the other family; empty when the node has none. */
  readonly nodeIPs: readonly IpAddress[];
  readonly podCIDRs: readonly string[];
}

export class NodeManager {
  readonly #options: NodeManagerOptions;
  /** The object as the source has it now; undefined before it arrives and after it is deleted. */
  #current: NodeRecord | undefined;
  #isSynced = false;
  #facts: NodeFacts | undefined;
  #wake: (() => void) | undefined;

  constructor(options: NodeManagerOptions) {
    this.#options = options;
  }

  /** Takes a Node event; ignores other nodes. */
  onEvent(event: ObjectEvent<NodeRecord>): void {
    const { nodeName, log } = this.#options;
    if (event.object.name !== nodeName) return;
    if (event.kind === "delete") {
      this.#current = undefined;
      log.error("Node is being deleted", undefined, { node: nodeName });
    } else {
      this.#current = event.object;
      if (this.#facts !== undefined) this.#compare(this.#facts, event.object);
    }
    this.#wake?.();
  }

  /** All initial Node objects have been received. */
  onSynced(): void {
    this.#isSynced = true;
    this.#wake?.();
  }

  /**
   * Waits for the node to be usable and freezes what the program is built on. Call once. Missing addresses are only
   * logged.
   *
   * @throws Error `timeout waiting for node "…" to exist` or `timeout waiting for PodCIDR allocation on node "…"` if
   * needed pod CIDRs do not come; the signal's reason when it aborts.
   */
  async start(signal: AbortSignal): Promise<NodeFacts> {
    const { nodeName, needsPodCIDRs, maxWaitMs = Number.POSITIVE_INFINITY, log } = this.#options;
    await this.#until(() => this.#isSynced, Number.POSITIVE_INFINITY, signal);
    const hasIPs = (): boolean => this.#nodeIPs().length > 0;
    await this.#until(hasIPs, Math.min(NODE_IPS_WAIT_MS, maxWaitMs), signal, "addresses");
    if (needsPodCIDRs) {
      const hasPodCIDRs = (): boolean => this.#podCIDRs().length > 0;
      await this.#until(hasPodCIDRs, Math.min(POD_CIDRS_WAIT_MS, maxWaitMs), signal, "pod CIDRs");
      if (this.#current === undefined) throw new Error(`timeout waiting for node "${nodeName}" to exist`);
      if (this.#podCIDRs().length === 0) {
        throw new Error(`timeout waiting for PodCIDR allocation on node "${nodeName}"`);
      }
    }
    if (this.#current === undefined) {
      log.error("Timed out waiting for node to exist", undefined, { node: nodeName });
    } else if (this.#nodeIPs().length === 0) {
      log.error("Timed out waiting for node to be assigned IPs", undefined, { node: nodeName });
    }
    this.#facts = { nodeIPs: this.#nodeIPs(), podCIDRs: this.#podCIDRs() };
    return this.#facts;
  }

  #nodeIPs(): readonly IpAddress[] {
    return this.#current === undefined ? [] : nodeIPsOf(this.#current);
  }

  #podCIDRs(): readonly string[] {
    return this.#current?.podCIDRs ?? [];
  }

  #compare(frozen: NodeFacts, node: NodeRecord): void {
    const { log, needsPodCIDRs, nodeName, onFatal } = this.#options;
    if (needsPodCIDRs && !equalLists(frozen.podCIDRs, node.podCIDRs)) {
      const facts = { node: nodeName, newPodCIDRs: node.podCIDRs, oldPodCIDRs: frozen.podCIDRs };
      log.error("PodCIDRs changed for the node", undefined, facts);
      onFatal(
        new Error(
          `pod CIDRs of node "${nodeName}" changed from [${frozen.podCIDRs.join(" ")}] to ` +
            `[${node.podCIDRs.join(" ")}]: a restart is needed to use them`,
        ),
      );
      return;
    }
    const newNodeIPs = nodeIPsOf(node);
    if (!equalLists(frozen.nodeIPs, newNodeIPs)) {
      log.info("NodeIPs changed for the node", { node: nodeName, newNodeIPs, oldNodeIPs: frozen.nodeIPs });
    }
  }

  /**
   * Waits until the condition holds, checking after every event, but no longer than `maxMs`; the caller checks again.
   *
   * @param what is waited for, to be logged: it may take minutes. @default nothing is logged
   */
  async #until(isMet: () => boolean, maxMs: number, signal: AbortSignal, what?: string): Promise<void> {
    const { nodeName, clock, log } = this.#options;
    if (what !== undefined && !isMet() && maxMs > 0) {
      const state = this.#current === undefined ? "the Node object" : `the node's ${what}`;
      log.info(`Waiting for ${state}`, { node: nodeName, atMostSeconds: maxMs / 1000 });
    }
    const deadlineMs = clock.monotonicMs() + maxMs;
    for (;;) {
      signal.throwIfAborted();
      const leftMs = deadlineMs - clock.monotonicMs();
      if (isMet() || leftMs <= 0) return;
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      await clock.sleep(leftMs, AbortSignal.any([signal, woken.signal]));
      this.#wake = undefined;
    }
  }
}
