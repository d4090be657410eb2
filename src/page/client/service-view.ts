/** One service port: the picture, what clients meet at each address, and each endpoint with why it is used or not. */
import { useEffect, useState } from "preact/hooks";
import {
  type Encounter,
  type ExplainedEndpoint,
  type ExplainedFrontend,
  type ExplainedUse,
  POSITIONS,
  type PortExplanation,
} from "../../explain/explanation.ts";
import { encounterWords, KIND_WORDS, POSITION_WORDS, shareText } from "../../explain/words.ts";
import { joinHostPort } from "../../net/ip.ts";
import type { ServiceAnswer } from "../answers.ts";
import { pictureOf } from "./picture.ts";
import {
  badge,
  type Children,
  html,
  itemsOf,
  plain,
  scrolling,
  tableOf,
  urlOf,
  useQuestion,
  type ViewProps,
  waiting,
} from "./ui.ts";

export function ServiceView({ query, state }: ViewProps) {
  const key = query.get("key") ?? "";
  const question = useQuestion<ServiceAnswer>("api/service", { key }, state);
  const count = useQuestion<ServiceAnswer>("api/service", undefined);
  useEffect(() => {
    document.title = `${plain(key)} · kube-proxy`;
  }, []);
  const counts = count.answer === undefined ? undefined : countsIn(count.answer);
  const notes = new Set(count.answer?.families.flatMap(({ explanation }) => explanation.trafficNotes ?? []));
  const said =
    counts === undefined
      ? "Asks the kernel once."
      : [`As of ${new Date(count.askedMs).toLocaleTimeString()}.`, ...notes].join(" ");
  const explanations = question.answer?.families.map(({ explanation }) => explanation);
  const verdict = explanations && verdictOf(explanations);
  const name = explanations?.[0]?.servicePort ?? key;
  return html`
    <p class="crumb"><a href="#/services">Services</a></p>
    <h1>${key}</h1>
    ${verdict !== undefined && html`<p class=${`sentence ${verdict.kind}`}>${verdict.text}</p>`}
    <p class="bar count-bar">
      <button type="button" disabled=${count.isAsking || question.failure !== ""}
        onClick=${() => count.ask({ key, traffic: "1" })}>Count connections</button>
      <small role="status">${count.failure || said}</small>
      <a href=${urlOf("connections", { search: name })}>its connections</a> <a href=${urlOf("syncs", { search: name.replace(/:[^:]*$/, "") })}>its syncs</a>
    </p>
    ${waiting(question)}
    ${question.answer?.families.map(({ explanation, picture }) => familyPart(explanation, picture, counts))}`;
}

type Counts = ReadonlyMap<string, string>;
type Drawn = ServiceAnswer["families"][number]["picture"];

function familyPart(explained: PortExplanation, picture: Drawn, counts: Counts | undefined) {
  const { family, type, protocol, endpoints, causes, decisions, kernel, node, zone, passedOver } = explained;
  const sentences = passedOver.map(({ slice, why }) => `${slice}: ${why}`);
  return html`<section aria-label=${family} key=${family}>
    <h2>${family}</h2>
    <p class="facts">${`${type}, ${protocol}, seen from ${node}${zone === null ? "" : ` in ${zone}`}`}</p>
    ${scrolling(`Picture, ${family}`, pictureOf(endpoints.length > FEW ? byNode(picture, endpoints) : withCounts(picture, explained, counts)))}
    <ul class="decisions">${itemsOf([...causes, ...decisions])}</ul>
    <h3>Addresses</h3>
    ${addressParts(explained, counts)}
    <h3>Endpoints (${endpoints.length})</h3>
    ${endpoints.length === 0 ? html`<p>None.</p>` : endpointParts(endpoints, family, counts)}
    ${sentences.length > 0 && html`<h3>Passed over</h3><ul>${itemsOf(sentences)}</ul>`}
    <details><summary>In the kernel (${kernel.length})</summary><ul class="kernel">${kernel.map(
      ({ kind, name, where, purpose }) =>
        html`<li><code>${name}</code><small>${`${kind} in ${where}${purpose === "" ? "" : `: ${purpose}`}`}</small></li>`,
    )}</ul></details>
  </section>`;
}

/** Beyond so many, endpoints are drawn and summed up by node, and listed in pages. */
const FEW = 20;

const isUsed = ({ cluster, local }: ExplainedEndpoint): boolean => cluster?.used === true || local?.used === true;

/** Nodes with endpoints that are not used come first. */
function nodesOf(endpoints: readonly ExplainedEndpoint[]) {
  const nodes = Array.from(Map.groupBy(endpoints, ({ node }) => node).values(), (own) => {
    const share = own.reduce((sum, { cluster, local }) => sum + (cluster ?? local ?? { share: 0 }).share, 0);
    return {
      node: own[0]?.node || "not said",
      first: own[0],
      count: own.length,
      used: own.filter(isUsed).length,
      share,
    };
  });
  return nodes.sort((one, other) => other.count - other.used - (one.count - one.used) || other.count - one.count);
}

function endpointParts(all: readonly ExplainedEndpoint[], family: string, counts: Counts | undefined) {
  const columns: (readonly [name: string, cell: (endpoint: ExplainedEndpoint) => Children] | false)[] = [
    ["Endpoint", ({ address }) => html`<code>${address}</code>`],
    all.some(({ pod }) => pod !== null) && [
      "Pod",
      ({ pod }) =>
        pod === null ? "not said" : html`<a href=${urlOf("services", { search: pod.replace(/^.*\//, "") })}>${pod}</a>`,
    ],
    ["Node", nodeCell],
    ["State", ({ state }) => badge(state === "ready" ? "good" : "warn", state)],
    all.some(({ cluster }) => cluster !== null) && ["Cluster policy", ({ cluster }) => useCell(cluster)],
    all.some(({ local }) => local !== null) && ["Local policy", ({ local }) => useCell(local)],
    counts !== undefined && ["Connections", (endpoint) => counts.get(keyOf(family, endpoint)) || "not known"],
  ];
  const shown = columns.filter((column) => column !== false);
  const rows = all.length > FEW ? all.toSorted((one, other) => Number(isUsed(one)) - Number(isUsed(other))) : all;
  const nodes = all.length > FEW ? nodesOf(all) : [];
  return html`
    ${
      nodes.length > 0 &&
      html`<${Paged} label=${`Nodes, ${family}`} names=${["Node", "Endpoints", "Used", "Share"]} count=${nodes.length} rowAt=${(
        at: number,
      ) => {
        const { first, count, used, share } = nodes[at] ?? {};
        return [first && nodeCell(first), count, used, shareText(share ?? 0)];
      }} />`
    }
    <${Paged} label=${`Endpoints, ${family}`} names=${shown.map(([name]) => name)} count=${rows.length} rowAt=${(
      at: number,
    ) => {
      const endpoint = rows[at];
      return endpoint === undefined ? [] : shown.map(([, cellOf]) => cellOf(endpoint));
    }} />`;
}

interface PagedProps {
  readonly label: string;
  readonly names: readonly string[];
  readonly count: number;
  readonly rowAt: (index: number) => readonly Children[];
}

/** A table, a page at a time. */
function Paged({ label, names, count, rowAt }: PagedProps) {
  const [wanted, setFrom] = useState(0);
  const from = Math.min(wanted, Math.max(0, count - 1));
  const rows = Array.from({ length: Math.min(FEW, count - from) }, (_, index) => rowAt(from + index));
  return html`${scrolling(label, tableOf(label, names, rows))}
    ${
      count > FEW &&
      html`<p class="pages">${`${from + 1} to ${from + rows.length} of ${count} `}
      <button type="button" disabled=${from === 0} onClick=${() => setFrom(from - FEW)}>Previous</button>${" "}
      <button type="button" disabled=${from + FEW >= count} onClick=${() => setFrom(from + FEW)}>Next</button></p>`
    }`;
}

/** Frontends at which clients meet the same, and positions that meet the same, are one. */
function addressParts({ frontends, protocol, family }: PortExplanation, counts: Counts | undefined) {
  const groups = Map.groupBy(frontends, ({ owner, clients, policy }) => JSON.stringify([owner, clients, policy]));
  return Array.from(groups.values(), (alike) => {
    const [first] = alike;
    if (first === undefined) return undefined;
    const { owner, clients } = first;
    const met = Map.groupBy(clients, encounterWords);
    return html`<div class="frontend">
      ${alike.map((one) => frontendTitle(one, protocol, counts?.get(keyOf(family, one)) ?? ""))}
      ${owner !== null && html`<p>${`Belongs to ${owner}, and does not lead here.`}</p>`}
      <dl class="clients">${Array.from(met.values(), (same) => [
        html`<dt>${same.length === POSITIONS.length ? "any client" : same.map(({ position }) => POSITION_WORDS[position]).join(", ")}</dt>`,
        html`<dd>${outcomeBadge(same[0]?.outcome)} ${same[0]?.words}</dd>`,
      ])}</dl>
    </div>`;
  });
}

const outcomeBadge = (outcome: Encounter["outcome"] = "not-known") =>
  badge(
    outcome === "answered" ? "good" : outcome === "not-known" ? "warn" : "bad",
    outcome === "passed-by" ? "not taken" : outcome.replace("-", " "),
  );

function frontendTitle(
  { kind, address, port, policy, owner, answersAt }: ExplainedFrontend,
  protocol: string,
  counted: string,
) {
  const to = { to: address ?? "", port: `${port}`, protocol: protocol.toLowerCase() };
  const facts = `policy ${policy}${answersAt === null ? "" : `, at ${answersAt}`}${counted === "" ? "" : `; ${counted}`}`;
  return html`<h4>${KIND_WORDS[kind]} <code>${address === null ? port : joinHostPort(address, port)}</code> <small>${facts}</small>
    ${address !== null && owner === null && html`<a class="follow" href=${urlOf("trace", to)}>follow a packet</a>`}</h4>`;
}

/** The answer in a sentence, over all families. Cluster IPs are for pods and nodes: that others get no answer there is no fault. */
export function verdictOf(families: readonly Pick<PortExplanation, "frontends" | "causes">[]) {
  const causes = [...new Set(families.flatMap(({ causes: own }) => own.slice(0, 1)))].join(" ");
  const all = families.flatMap(({ frontends }) =>
    frontends.flatMap(({ kind, owner, clients }) =>
      owner === null ? clients.map((client) => ({ ...client, kind })) : [],
    ),
  );
  const isMeant = ({ kind, position }: (typeof all)[number]) =>
    kind !== "cluster-ip" || position === "pod" || position === "node";
  const met = all.filter(isMeant);
  const isGood = ({ outcome, reason }: Encounter) =>
    outcome === "passed-by" || (outcome === "answered" && reason !== "answers-lost");
  const failing = met.filter((one) => !isGood(one));
  if (met.every(({ outcome }) => outcome !== "answered"))
    return { kind: "bad", text: `No client gets an answer. ${causes}` } as const;
  if (failing.length === 0) {
    const isForAll = all.every((one) => isMeant(one) || isGood(one));
    const limit = isForAll ? "" : " At the cluster IP that is so for pods and this node; clients outside may get none.";
    return { kind: "good", text: `Every client gets an answer.${limit}` } as const;
  }
  const list = (texts: readonly string[]) => [...new Set(texts)].join(", ");
  const what = failing.some(({ outcome }) => outcome === "refused" || outcome === "dropped")
    ? "get no answer"
    : "may get no answer";
  const who = list(failing.map(({ position }) => POSITION_WORDS[position]));
  const why = list(failing.map(({ words }) => words));
  const text = `Answered, but at its ${list(failing.map(({ kind }) => KIND_WORDS[kind]))} these ${what}: ${who} (${why}).`;
  return { kind: "warn", text } as const;
}

/** The path of a node's page through the API server, from which the paths of other nodes' pages follow. */
const THROUGH_API_SERVER = /^(.*\/api\/v1\/nodes\/)[^/]+?((?::|%3A)\d+\/proxy\/)/i;

/** The node's name, as a link to the same view on its page if the path of that page is known. */
function nodeCell({ node, isLocal }: ExplainedEndpoint) {
  if (node === "") return isLocal ? "here" : "not said";
  const [, before, behind] = THROUGH_API_SERVER.exec(location.pathname) ?? [];
  if (isLocal) return `${node} (here)`;
  if (before === undefined) return node;
  return html`<a href=${`${before}${encodeURIComponent(node)}${behind}${location.hash}`}>${node}</a>`;
}

function useCell(use: ExplainedUse | null) {
  if (use === null) return "not asked";
  if (!use.used) return html`<span class="out">left out: ${use.why}</span>`;
  return html`<meter min="0" max="1" value=${use.share} aria-hidden="true" /> ${`${shareText(use.share)}${use.why === "ready" ? "" : `: ${use.why}`}`}`;
}

/** The last counts, in words. */
function countsIn({ families }: ServiceAnswer): Counts {
  return new Map(
    families.flatMap(({ explanation: { family, frontends, endpoints } }) =>
      [...frontends, ...endpoints].map((one) => [keyOf(family, one), countedText(one)] as const),
    ),
  );
}

/** A frontend or an endpoint; an endpoint has its port in its address. */
type Place = Pick<ExplainedFrontend, "address"> & { readonly port?: number };

const keyOf = (family: string, { address, port }: Place): string => `${family} ${address ?? ""} ${port ?? ""}`;

/** `12 open, 300 counted`; empty if nothing is known. */
function countedText({ open = null, counted = null }: Pick<ExplainedEndpoint, "open" | "counted">): string {
  const texts = [open === null ? "" : `${open} open`, counted === null ? "" : `${counted} counted`];
  return texts.filter((text) => text !== "").join(", ");
}

/** Adds counts to the boxes of a picture; box ids end in `f` (frontend) or `e` (endpoint) and a number. */
function withCounts(
  picture: Drawn,
  { family, frontends, endpoints }: PortExplanation,
  counts: Counts | undefined,
): Drawn {
  const boxes = picture.boxes.map((box) => {
    const [, kind, number] = /([fe])(\d+)$/.exec(box.id) ?? [];
    const one = (kind === "f" ? frontends : endpoints)[Number(number)];
    const text = one === undefined ? "" : (counts?.get(keyOf(family, one)) ?? "");
    return { ...box, note: [box.note, text].filter((part) => part !== "").join(", ") };
  });
  return { ...picture, boxes };
}

/** One box for each node in place of its endpoints. */
function byNode(picture: Drawn, endpoints: readonly ExplainedEndpoint[]): Drawn {
  const policies = picture.boxes.filter(({ column }) => column === 1);
  const nodes = nodesOf(endpoints);
  const boxes = nodes.map(({ node, count, used }) => {
    const note = `${count} endpoint${count === 1 ? "" : "s"}, ${used === count ? "all" : used} used`;
    return { id: `node ${node}`, title: node, note, column: 2, isUsed: used > 0 } as const;
  });
  const arrows = nodes.flatMap(({ node, share, used }) =>
    used === 0 ? [] : policies.map(({ id }) => ({ from: id, to: `node ${node}`, label: shareText(share) })),
  );
  return {
    ...picture,
    boxes: [...picture.boxes.filter(({ column }) => column !== 2), ...boxes],
    arrows: [...picture.arrows.filter(({ from }) => !policies.some(({ id }) => id === from)), ...arrows],
  };
}
