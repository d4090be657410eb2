/**
 * An explanation as a picture: frontends on the left, policies in the middle, endpoints on the right; unused boxes are dashed.
 */
import type { ExplainedEndpoint, ExplainedUse, PortExplanation } from "./explanation.ts";
import { frontendTitle } from "./text.ts";
import { shareText } from "./words.ts";

/** A box with two lines of text. */
export interface Box {
  readonly id: string;
  readonly title: string;
  readonly note: string;
  readonly column: 0 | 1 | 2;
  readonly isUsed: boolean;
}

export interface Arrow {
  readonly from: string;
  readonly to: string;
  readonly label: string;
}

export interface Picture {
  readonly title: string;
  readonly boxes: readonly Box[];
  readonly arrows: readonly Arrow[];
}

const FATES = { serve: "", drop: "dropped", refuse: "refused", lost: "another's" } as const;

/** Draws one service port of one family. @param prefix of the ids, for several pictures in one document. */
export function pictureOf(explained: PortExplanation, prefix = ""): Picture {
  const { servicePort, protocol, node, family, mode, frontends, endpoints } = explained;
  const boxes: Box[] = [];
  const arrows: Arrow[] = [];
  const policies = (["cluster", "local"] as const).filter((policy) => endpoints.some((one) => one[policy] !== null));
  for (const [index, frontend] of frontends.entries()) {
    const id = `${prefix}f${index}`;
    const isUsed = frontend.fate !== "lost" && frontend.clients.some(({ outcome }) => outcome === "answered");
    boxes.push({ id, title: frontendTitle(frontend), note: FATES[frontend.fate], column: 0, isUsed });
    for (const policy of policies) {
      const ways = frontend.clients.filter((one) => one.endpoints === (policy === "cluster" ? "all" : "local"));
      if (ways.length === 0) continue;
      const label = ways.length === frontend.clients.length ? "" : ways.map(({ position }) => position).join(", ");
      arrows.push({ from: id, to: `${prefix}${policy}`, label });
    }
  }
  for (const policy of policies) {
    const used = endpoints.filter((one) => one[policy]?.used === true).length;
    const title = `${policy === "cluster" ? "Cluster" : "Local"} policy`;
    const note = `${used} of ${endpoints.length} endpoints`;
    boxes.push({ id: `${prefix}${policy}`, title, note, column: 1, isUsed: used > 0 });
  }
  for (const [index, endpoint] of endpoints.entries()) {
    const id = `${prefix}e${index}`;
    const uses = policies.map((policy) => endpoint[policy]);
    const note = endpointNote(endpoint, uses);
    boxes.push({ id, title: endpoint.address, note, column: 2, isUsed: uses.some(isUsed) });
    for (const policy of policies) {
      const use = endpoint[policy];
      if (use?.used === true) arrows.push({ from: `${prefix}${policy}`, to: id, label: shareText(use.share) });
    }
  }
  return { title: `${servicePort} ${protocol} on ${node}, ${mode} mode, ${family}`, boxes, arrows };
}

function isUsed(use: ExplainedUse | null): boolean {
  return use?.used === true;
}

function endpointNote({ pod, node, state }: ExplainedEndpoint, uses: readonly (ExplainedUse | null)[]): string {
  const place = [pod?.replace(/^.*\//, "") ?? "", node, state].filter((part) => part !== "").join(", ");
  const refusal = uses.some(isUsed) ? undefined : uses.find((use) => use !== null)?.why;
  return refusal === undefined || refusal === state ? place : `${place}: ${refusal}`;
}
