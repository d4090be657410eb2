/**
 * Which load balancers others have changed under the same ID. The first version of HNS's interface lists all of them with what they do, in
 * one call, where HCN takes three for each. Its view lacks some fields and has others, so it is only compared with itself: what says
 * something else than the last time is read again. Reference windows-hcn.md §4.5.
 */
import { hash } from "node:crypto";
import type { HcnLoadBalancer } from "../../kernel/hcn/documents.ts";
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { Hcn } from "../../kernel/hcn/hcn.ts";
import type { LoadBalancerBook } from "./load-balancer-book.ts";

interface Seen {
  readonly digest: string;
  /** What was known then: our own writes replace it. */
  readonly known: HcnLoadBalancer;
}

/** A load balancer that is not what it was. */
export interface ChangedLoadBalancer {
  readonly before: HcnLoadBalancer;
  readonly now: HcnLoadBalancer;
}

export class Overview {
  #seen: ReadonlyMap<Guid, Seen> = new Map();

  /** Compares with the last time, and brings the book up to date: one call, and three for each that says something else. */
  async refresh(hcn: Hcn, book: LoadBalancerBook, onChanged: (change: ChangedLoadBalancer) => void): Promise<void> {
    const seen = new Map<Guid, Seen>();
    const suspects: HcnLoadBalancer[] = [];
    for (const [id, text] of await hcn.policyLists()) {
      const known = book.get(id);
      if (known === undefined) continue;
      const digest = hash("sha1", text, "base64");
      const before = this.#seen.get(id);
      if (before?.known === known && before.digest !== digest) suspects.push(known);
      seen.set(id, { digest, known });
    }
    for (const before of suspects) {
      const now = await hcn.loadBalancer(before.id);
      // What is gone is seen by its ID.
      if (now === undefined || JSON.stringify(now) === JSON.stringify(before)) continue;
      book.note(now);
      seen.set(now.id, { digest: seen.get(now.id)?.digest ?? "", known: now });
      onChanged({ before, now });
    }
    // Not before: what HNS did not answer is suspect the next time as well.
    this.#seen = seen;
  }
}
