/** What the picture of a service port shows: frontends on the left, policies in the middle, endpoints on the right; unused boxes are dashed. */
import { type ExplainedEndpoint, isUsed, type PortExplanation, type Traffic } from "../../explain/explanation.ts";
import { frontendTitle, shareText } from "../../explain/words.ts";
import type { Arrow, Box, Picture } from "./picture.ts";
import { numbered, urlOf } from "./ui.ts";

const FATES = { serve: "", drop: "dropped", refuse: "refused", lost: "another's" } as const;
/** Beyond so many, endpoints are drawn and summed up by node, and listed in pages. */
export const FEW = 20;

/** What many endpoints are summed up by. */
export type Grouping = "node" | "zone";

export function servicePicture(
  { frontends, endpoints, ...explained }: PortExplanation,
  by: Grouping = "node",
): Picture {
  const { servicePort, protocol, node, mode, family } = explained;
  const arrows: Arrow[] = [];
  const policies = (["cluster", "local"] as const).flatMap((policy) => {
    if (endpoints.every((one) => one[policy] === null)) return [];
    const used = endpoints.filter((one) => one[policy]?.used === true).length;
    const title = `${policy === "cluster" ? "Cluster" : "Local"} policy`;
    const note = `${used} of ${endpoints.length} endpoints`;
    return [{ policy, box: { title, note, column: 1, isUsed: used > 0 } as const }];
  });
  const sources = frontends.map((frontend): Box => {
    const { clients, fate } = frontend;
    const isUsed = fate !== "lost" && clients.some(({ outcome }) => outcome === "answered");
    const note = joined([FATES[fate], countedText(frontend)]);
    const box = { title: frontendTitle(frontend), note, column: 0, isUsed } as const;
    for (const { policy, box: to } of policies) {
      const ways = clients.filter((one) => one.endpoints === (policy === "cluster" ? "all" : "local"));
      const label = ways.length === clients.length ? "" : ways.map(({ position }) => position).join(", ");
      if (ways.length > 0) arrows.push({ from: box, to, label });
    }
    return box;
  });
  const groups = endpoints.length > FEW ? groupsOf(endpoints, by).map(({ own }) => own) : endpoints.map((one) => [one]);
  const targets = groups.map((own): Box => {
    const box = {
      ...wordsOf(own, endpoints.length > FEW ? by : undefined),
      column: 2,
      isUsed: own.some(isUsed),
    } as const;
    for (const { policy, box: from } of policies) {
      const uses = own.flatMap((one) => (one[policy]?.used === true ? [one[policy].share] : []));
      const share = uses.reduce((sum, one) => sum + one, 0);
      if (uses.length > 0) arrows.push({ from, to: box, label: shareText(share) });
    }
    return box;
  });
  const title = `${servicePort} ${protocol} on ${node}, ${mode} mode, ${family}`;
  return { title, boxes: [...sources, ...policies.map(({ box }) => box), ...targets], arrows };
}

/** The texts of the box of a node or zone, or of the only endpoint. */
function wordsOf(own: readonly ExplainedEndpoint[], by: Grouping | undefined): Pick<Box, "title" | "note" | "href"> {
  const [first] = own;
  const used = own.filter(isUsed).length;
  if (first === undefined || by !== undefined) {
    const note = `${numbered(own.length, "endpoint")}, ${used === own.length ? "all" : used} used`;
    return { title: first?.[by ?? "node"] || "not said", note };
  }
  const { address, pod, node, state, cluster, local } = first;
  const name = pod?.replace(/^.*\//, "") ?? "";
  const place = [name, node, state].filter((part) => part !== "").join(", ");
  const refusal = used > 0 ? undefined : (cluster ?? local)?.why;
  const note = refusal === undefined || refusal === state ? place : `${place}: ${refusal}`;
  const href = urlOf("services", { search: name || address });
  return { title: address, note: joined([note, countedText(first)]), href };
}

const joined = (parts: readonly string[]): string => parts.filter((part) => part !== "").join(", ");

/** Nodes or zones with endpoints that are not used come first. */
export function groupsOf(endpoints: readonly ExplainedEndpoint[], by: Grouping) {
  const groups = Array.from(Map.groupBy(endpoints, (one) => one[by] ?? "").values(), (own) => ({
    ...{ own, first: own[0], used: own.filter(isUsed).length },
    share: own.reduce((sum, { cluster, local }) => sum + ((cluster ?? local)?.share ?? 0), 0),
  }));
  const unused = ({ own, used }: (typeof groups)[number]) => own.length - used;
  return groups.sort((one, other) => unused(other) - unused(one) || other.own.length - one.own.length);
}

/** `12 open, 300 counted`; empty if nothing is known. */
export const countedText = ({ open, counted }: Traffic): string =>
  joined([typeof open === "number" ? `${open} open` : "", typeof counted === "number" ? `${counted} counted` : ""]);
