/**
 * Reconciles load balancers, one frontend at a time: modifies them in place where HNS can do that, otherwise deletes and recreates
 * them back to back. Reads back what was written, because some versions of HNS report success and do nothing.
 */

import { isDeepStrictEqual } from "../../async/node-util.ts";
import { equalLists } from "../../model/objects.ts";
import type { SyncNotes } from "../shared/reconciler.ts";
import {
  type HcnLoadBalancer,
  LB_DSR,
  LB_IPV6,
  type LoadBalancerSettings,
  loadBalancerText,
  MAP_EXTERNAL_IP,
} from "./hcn/documents.ts";
import type { Guid } from "./hcn/guid.ts";
import { hcnErrorClass } from "./hcn/hcn-error.ts";
import type { HostState } from "./host-state.ts";
import type { LoadBalancerVerb } from "./metrics.ts";
import type { KernelspaceOptions } from "./options.ts";
import type { LoadBalancerKind } from "./plan-service-port.ts";

/** Something else holds the frontend. The message is for people. */
export class FrontendHeldError extends Error {
  override readonly name = "FrontendHeldError";
}

/** Every attempt breaks the connections of the present load balancer, and a rejected document is rarely accepted later. */
const AGAIN_AFTER_MS = 600_000;

/** A load balancer to be written. */
export interface LoadBalancerToPut {
  readonly host: HostState;
  readonly notes: SyncNotes;
  /** Its frontend. */
  readonly key: string;
  readonly kind: LoadBalancerKind;
  readonly wanted: LoadBalancerSettings;
}

export class LoadBalancerWriter {
  readonly #options: KernelspaceOptions;
  #canModify: boolean;
  readonly #own = new Set<Guid>();
  /** Load balancers that HNS describes differently from what was sent: that alone is no reason to send them again. */
  readonly #reworded = new Map<Guid, { readonly sent: string; readonly readBack: string }>();
  /** By frontend, settings that HNS rejected as a replacement for a load balancer; they are not retried before `untilMs`. */
  readonly #refused = new Map<string, { readonly sent: string; readonly error: unknown; readonly untilMs: number }>();

  constructor(options: KernelspaceOptions) {
    this.#options = options;
    this.#canModify = options.canModify;
  }

  get canModify(): boolean {
    return this.#canModify;
  }

  /** Whether this process created it, or found it as wanted. */
  isOwn(id: Guid): boolean {
    return this.#own.has(id);
  }

  /** Forgets deleted load balancers and old refusals. */
  keepOnly(host: HostState): void {
    for (const id of this.#own) if (!host.loadBalancers.has(id)) this.#own.delete(id);
    for (const id of this.#reworded.keys()) if (!host.loadBalancers.has(id)) this.#reworded.delete(id);
    const nowMs = this.#options.clock.monotonicMs();
    for (const [key, { untilMs }] of this.#refused) if (untilMs <= nowMs) this.#refused.delete(key);
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

  /** @throws HcnError, or FrontendHeldError if something else holds the frontend. */
  async put(one: LoadBalancerToPut): Promise<void> {
    const { host, key, wanted } = one;
    const found = host.loadBalancers.at(key);
    if (found !== undefined && (await this.#settle(one, found))) return;
    try {
      await this.#create(one);
    } catch (error) {
      if (found === undefined || hcnErrorClass(error) !== "refused") throw error;
      const untilMs = this.#options.clock.monotonicMs() + AGAIN_AFTER_MS;
      this.#refused.set(key, { sent: loadBalancerText(wanted), error, untilMs });
      await this.#putBack(one, found);
      throw error;
    }
    this.#refused.delete(key);
  }

  /** Recreates the former load balancer with its endpoints that are still wanted, after HNS rejected its replacement. */
  async #putBack(one: LoadBalancerToPut, found: HcnLoadBalancer): Promise<void> {
    const { sourceVip, frontendVips, mappings, flags } = found;
    const [frontendVip, mapping] = [frontendVips[0], mappings[0]];
    const endpoints = found.endpoints.filter((id) => one.wanted.endpoints.includes(id));
    if (mapping === undefined || endpoints.length === 0) return;
    const wanted = { endpoints, sourceVip, frontendVip, mapping, flags: flags & KNOWN_FLAGS };
    // If this fails, too, the first error says more.
    await this.#create({ ...one, wanted }).catch(() => {});
  }

  async remove(host: HostState, notes: SyncNotes, id: Guid, kind?: LoadBalancerKind): Promise<void> {
    const isOf = kind ?? kindOf(host.loadBalancers.get(id));
    await this.#counted("delete", isOf, this.#options.hcn.delete("LoadBalancer", id));
    notes.count("load balancers deleted");
    host.loadBalancers.forget(id);
    this.#reworded.delete(id);
    this.#own.delete(id);
  }

  /** Modifies or removes the load balancer at the frontend. @returns whether it is as wanted. */
  async #settle(one: LoadBalancerToPut, found: HcnLoadBalancer): Promise<boolean> {
    const { host, notes, key, kind, wanted } = one;
    if (this.isSettled(found, wanted)) return true;
    if (host.isForeign(found)) {
      throw new FrontendHeldError(
        `the load balancer ${found.id} of another program answers there; it is left alone (hnsdiag list loadbalancers)`,
      );
    }
    if (this.#canModify && (await this.#modify(one, found))) return true;
    const refused = this.#refused.get(key);
    const isSame = refused?.sent === loadBalancerText(wanted);
    if (isSame && this.#options.clock.monotonicMs() < refused.untilMs) throw refused.error;
    await this.remove(host, notes, found.id, kind);
    return false;
  }

  /** @returns whether it worked. */
  async #modify({ host, notes, kind, wanted }: LoadBalancerToPut, found: HcnLoadBalancer): Promise<boolean> {
    let changed: HcnLoadBalancer;
    try {
      changed = await this.#counted("update", kind, this.#options.hcn.modifyLoadBalancer(found.id, wanted));
    } catch (error) {
      if (hcnErrorClass(error) === "unsupported") {
        this.#giveUpModifying("HNS does not support it");
        return false;
      }
      // It or an endpoint may be gone, or it was modified and only the answer was lost.
      const now = await this.#options.hcn.get("LoadBalancer", found.id).catch(() => found);
      if (now === undefined) {
        host.loadBalancers.forget(found.id);
        return false;
      }
      host.loadBalancers.note(now);
      throw error;
    }
    const hasNotChanged = JSON.stringify(changed) === JSON.stringify(found) && !isAsWanted(changed, wanted);
    if (hasNotChanged) this.#giveUpModifying("HNS reported success, but changed nothing");
    else this.#noteWritten(host, changed, wanted);
    notes.count("load balancers changed");
    return !hasNotChanged;
  }

  async #create(one: LoadBalancerToPut): Promise<void> {
    const { host, notes, key, kind, wanted } = one;
    const create = () => this.#counted("create", kind, this.#options.hcn.createLoadBalancer(wanted));
    let created: HcnLoadBalancer;
    try {
      created = await create();
    } catch (error) {
      if (hcnErrorClass(error) === "transient" && (await this.#isThere(one))) return;
      if (hcnErrorClass(error) !== "taken") throw error;
      const found = await this.#holderOf(host, key, error);
      if (await this.#settle(one, found)) return;
      created = await create();
    }
    this.#noteWritten(host, created, wanted);
    notes.count("load balancers made");
  }

  /** Whether it was created after all, and only the answer was lost. */
  async #isThere({ host, key, wanted }: LoadBalancerToPut): Promise<boolean> {
    await host.refreshLoadBalancers(this.#options.hcn).catch(() => {});
    const found = host.loadBalancers.at(key);
    return found !== undefined && this.isSettled(found, wanted);
  }

  /** Finds an unknown holder of the frontend: after a restart of HNS, load balancers come back late (kubernetes #139519). */
  async #holderOf(host: HostState, key: string, cause: unknown): Promise<HcnLoadBalancer> {
    await host.refreshLoadBalancers(this.#options.hcn);
    const found = host.loadBalancers.at(key);
    if (found !== undefined) return found;
    const unread = (await this.#options.hcn.ids("LoadBalancer")).find((id) => !host.loadBalancers.has(id));
    const advice =
      unread === undefined
        ? "no load balancer is there: a socket of the host or a reserved port range holds it (netsh int ipv4 show excludedportrange)"
        : `perhaps the load balancer ${unread} has it, whose document cannot be read (hnsdiag list loadbalancers)`;
    throw new FrontendHeldError(`${String(cause instanceof Error ? cause.message : cause)}; ${advice}`, { cause });
  }

  async #counted<T>(verb: LoadBalancerVerb, kind: LoadBalancerKind, call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      this.#options.metrics.countFailure(verb, kind, error);
      throw error;
    }
  }

  #giveUpModifying(reason: string): void {
    this.#canModify = false;
    this.#options.log.warn("From now on load balancers are deleted and recreated instead of being changed in place", {
      reason,
    });
  }

  #noteWritten(host: HostState, found: HcnLoadBalancer, wanted: LoadBalancerSettings): void {
    host.loadBalancers.note(found);
    this.#own.add(found.id);
    if (isAsWanted(found, wanted)) return;
    this.#reworded.set(found.id, { sent: loadBalancerText(wanted), readBack: JSON.stringify(found) });
  }
}

/** A guess at the purpose of a load balancer that no Service wants any more. */
function kindOf(found: HcnLoadBalancer | undefined): LoadBalancerKind {
  if (found?.frontendVips.length === 0) return "node-port";
  return found?.mappings.some(({ flags }) => (flags & MAP_EXTERNAL_IP) !== 0) ? "external-ip" : "cluster-ip";
}

const KNOWN_FLAGS = LB_DSR | LB_IPV6;

/**
 * Whether a load balancer is as wanted (windows.md §3.3, windows-practice.md §9.3). Unlike upstream, this compares everything,
 * including source VIP, flags and distribution; not the order of endpoints, nor a source VIP that was left to HNS.
 */
export function isAsWanted(found: HcnLoadBalancer, wanted: LoadBalancerSettings): boolean {
  const { sourceVip, frontendVip, mapping, flags } = wanted;
  return (
    (found.flags & KNOWN_FLAGS) === flags &&
    (sourceVip === undefined || found.sourceVip === sourceVip) &&
    equalLists(found.frontendVips, frontendVip === undefined ? [] : [frontendVip]) &&
    isDeepStrictEqual(found.mappings, [mapping]) &&
    equalLists(found.endpoints.toSorted(), wanted.endpoints.toSorted())
  );
}
