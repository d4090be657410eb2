/**
 * iptables chooses an endpoint with a sequence of rules, each with odds relative to what the rules before left over. This flattens
 * them into one choice.
 */
import type { Branch, TraceEnd, TraceEvent, TraceNode } from "../netfilter/tree.ts";

/** The branches of a random choice, including those of choices that directly follow it. */
export function flatBranches(end: TraceEnd & { kind: "fork" }): readonly Branch[] {
  const flat: Branch[] = [];
  let open: readonly Branch[] = end.branches;
  let share = 1;
  while (open.length > 0) {
    const next: TraceNode | undefined = open.map(({ node }) => node).find(isOnlyChoice);
    let rest = 0;
    for (const { odds, label, node } of open) {
      if (node === next) rest = odds ?? 0;
      else flat.push({ odds: (odds ?? 0) * share, label: labelOf(label, node), node });
    }
    share *= rest;
    open = next?.end.kind === "fork" ? next.end.branches : [];
  }
  return flat;
}

/** Whether the node does nothing but lead to another random choice. */
function isOnlyChoice({ events, end }: TraceNode): boolean {
  const isRandom = end.kind === "fork" && end.branches.every(({ odds }) => odds !== undefined);
  return isRandom && events.every(({ kind }) => kind === "no-match" || kind === "skipped");
}

/** The action of a rule says more than that it matched by chance. */
function labelOf(label: string, { events }: TraceNode): string {
  const first = events.find((event): event is TraceEvent & { kind: "match" } => event.kind === "match");
  return (label === "match" || label === "no match") && first !== undefined ? first.said : label;
}
