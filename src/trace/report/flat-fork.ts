/**
 * iptables chooses an endpoint with a sequence of rules, each with odds relative to what the rules before left over. This flattens
 * them into one choice.
 */
import type { Branch, TraceEnd, TraceEvent, TraceNode } from "../netfilter/tree.ts";

type Fork = TraceEnd & { readonly kind: "fork" };

/** A fork for people: whether chance decides, and the branches, then including those of choices that directly follow it. */
export function forkOf(end: Fork): { readonly isRandom: boolean; readonly branches: readonly Branch[] } {
  const isRandom = isOfChance(end);
  return { isRandom, branches: isRandom ? flatBranches(end) : end.branches };
}

const isOfChance = (end: TraceEnd): boolean =>
  end.kind === "fork" && end.branches.every(({ odds }) => odds !== undefined);

function flatBranches(end: Fork): readonly Branch[] {
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
  return isOfChance(end) && events.every(({ kind }) => kind === "no-match" || kind === "skipped");
}

/** The action of a rule says more than that it matched by chance. */
function labelOf(label: string, { events }: TraceNode): string {
  const first = events.find((event): event is TraceEvent & { kind: "match" } => event.kind === "match");
  return (label === "match" || label === "no match") && first !== undefined ? first.said : label;
}
