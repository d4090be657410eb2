/**
 * Brings load balancers from what HNS has to what is wanted, one frontend at a time: changed in place where HNS can do that, otherwise
 * deleted and made again back to back. What was written is read back, because some versions of HNS say yes and do nothing.
 */
import { type HcnLoadBalancer, type LoadBalancerSettings, loadBalancerText } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import { hcnErrorClass } from "../../kernel/hcn/hcn-error.ts";
import type { Logger } from "../../logging/logger.ts";
import type { HostState } from "./host-state.ts";
import { isForeign } from "./ownership.ts";
import { isAsWanted } from "./settings-difference.ts";
import type { WriteCounts } from "./write-counts.ts";

/** The frontend cannot be had. The message is for people. */
export class FrontendHeldError extends Error {
  override readonly name = "FrontendHeldError";
}

export interface LoadBalancerWriterOptions {
  readonly hcn: Hcn;
  /** HNS changes load balancers in place. */
  readonly canModify: boolean;
  readonly counts: WriteCounts;
  readonly log: Logger;
}

export class LoadBalancerWriter {
  readonly #hcn: Hcn;
  readonly #counts: WriteCounts;
  readonly #log: Logger;
  #canModify: boolean;
  readonly #own = new Set<Guid>();
  /** What was sent, where HNS has something else than that to say of it: it is not sent again for this reason. */
  readonly #reworded = new Map<Guid, { readonly sent: string; readonly readBack: string }>();

  constructor({ hcn, canModify, counts, log }: LoadBalancerWriterOptions) {
    this.#hcn = hcn;
    this.#canModify = canModify;
    this.#counts = counts;
    this.#log = log;
  }

  get canModify(): boolean {
    return this.#canModify;
  }

  /** Whether this process has made it, or has found it as it was wanted. */
  isOwn(id: Guid): boolean {
    return this.#own.has(id);
  }

  /** Forgets what HNS does not have any more. */
  keepOnly(host: HostState): void {
    for (const id of this.#own) if (!host.loadBalancers.has(id)) this.#own.delete(id);
    for (const id of this.#reworded.keys()) if (!host.loadBalancers.has(id)) this.#reworded.delete(id);
  }

  /** Whether there is nothing to do. */
  isSettled(found: HcnLoadBalancer, wanted: LoadBalancerSettings): boolean {
    const reworded = this.#reworded.get(found.id);
    const isSettled =
      isAsWanted(found, wanted) ||
      (reworded?.sent === loadBalancerText(wanted) && reworded.readBack === JSON.stringify(found));
    if (isSettled) this.#own.add(found.id);
    return isSettled;
  }

  /** @throws HcnError, or FrontendHeldError when something else answers there. */
  async put(host: HostState, key: string, wanted: LoadBalancerSettings): Promise<void> {
    const found = host.loadBalancers.at(key);
    if (found === undefined) return await this.#create(host, key, wanted);
    if (this.isSettled(found, wanted)) return;
    this.#refuseForeign(host, found);
    if (this.#canModify && (await this.#modify(host, found, wanted))) return;
    await this.remove(host, found.id);
    await this.#create(host, key, wanted);
  }

  async remove(host: HostState, id: Guid): Promise<void> {
    await this.#hcn.delete("LoadBalancer", id);
    this.#counts.add("load balancers deleted");
    host.loadBalancers.forget(id);
    this.#reworded.delete(id);
    this.#own.delete(id);
  }

  /** @returns whether it worked. */
  async #modify(host: HostState, found: HcnLoadBalancer, wanted: LoadBalancerSettings): Promise<boolean> {
    let changed: HcnLoadBalancer;
    try {
      changed = await this.#hcn.modifyLoadBalancer(found.id, wanted);
    } catch (error) {
      const kind = hcnErrorClass(error);
      if (kind === "absent") {
        host.loadBalancers.forget(found.id);
        return false;
      }
      if (kind !== "unsupported") throw error;
      this.#giveUpModifying("HNS says that it cannot");
      return false;
    }
    host.loadBalancers.note(changed);
    this.#counts.add("load balancers changed");
    this.#own.add(changed.id);
    if (isAsWanted(changed, wanted)) return true;
    if (JSON.stringify(changed) === JSON.stringify(found)) {
      this.#giveUpModifying("HNS says that it did, and did not");
      return false;
    }
    this.#noteReworded(changed, wanted);
    return true;
  }

  async #create(host: HostState, key: string, wanted: LoadBalancerSettings): Promise<void> {
    let created: HcnLoadBalancer;
    try {
      created = await this.#hcn.createLoadBalancer(wanted);
    } catch (error) {
      if (hcnErrorClass(error) !== "taken") throw error;
      await this.#takeOver(host, key, wanted, error);
      return;
    }
    this.#noteCreated(host, created, wanted);
  }

  /** Something answers at the frontend that was not there before: after a restart of HNS, load balancers come back late (kubernetes #139519). */
  async #takeOver(host: HostState, key: string, wanted: LoadBalancerSettings, cause: unknown): Promise<void> {
    await host.refreshLoadBalancers(this.#hcn);
    const found = host.loadBalancers.at(key);
    if (found === undefined) {
      const [unread] = host.unreadLoadBalancers;
      const advice =
        unread === undefined
          ? "no load balancer is there: a socket of the host or a reserved range of ports has it (netsh int ipv4 show excludedportrange)"
          : `perhaps the load balancer ${unread} has it, whose document cannot be read (hnsdiag list loadbalancers)`;
      throw new FrontendHeldError(`${String(cause instanceof Error ? cause.message : cause)}; ${advice}`, { cause });
    }
    if (this.isSettled(found, wanted)) return;
    this.#refuseForeign(host, found);
    if (this.#canModify && (await this.#modify(host, found, wanted))) return;
    await this.remove(host, found.id);
    this.#noteCreated(host, await this.#hcn.createLoadBalancer(wanted), wanted);
  }

  #noteCreated(host: HostState, created: HcnLoadBalancer, wanted: LoadBalancerSettings): void {
    host.loadBalancers.note(created);
    this.#counts.add("load balancers made");
    this.#own.add(created.id);
    if (!isAsWanted(created, wanted)) this.#noteReworded(created, wanted);
  }

  #refuseForeign(host: HostState, found: HcnLoadBalancer): void {
    if (!isForeign(found, host)) return;
    throw new FrontendHeldError(
      `the load balancer ${found.id} of another program answers there; it is left alone (hnsdiag list loadbalancers)`,
    );
  }

  #giveUpModifying(reason: string): void {
    this.#canModify = false;
    this.#log.warn("Load balancers are deleted and made again from now on, instead of changed in place", { reason });
  }

  #noteReworded(found: HcnLoadBalancer, wanted: LoadBalancerSettings): void {
    this.#reworded.set(found.id, { sent: loadBalancerText(wanted), readBack: JSON.stringify(found) });
  }
}
