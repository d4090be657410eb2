/**
 * iptables chooses among endpoints by rules that follow each other, each with the odds of what the ones before left. Shown as
 * the one choice that it is. Pure.
 */
import type { Branch, TraceEnd, TraceEvent, TraceNode } from "../netfilter/tree.ts";

/** The branches of a random choice, with those of the choices that follow at once. */
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

/** Whether nothing happens on the way to another random choice. */
function isOnlyChoice({ events, end }: TraceNode): boolean {
  const isRandom = end.kind === "fork" && end.branches.every(({ odds }) => odds !== undefined);
  return isRandom && events.every(({ kind }) => kind === "no-match" || kind === "skipped");
}

/** What a rule that matched by chance goes on to do says more than that it matched. */
function labelOf(label: string, { events }: TraceNode): string {
  const first = events.find((event): event is TraceEvent & { kind: "match" } => event.kind === "match");
  return (label === "match" || label === "no match") && first !== undefined ? first.said : label;
}
