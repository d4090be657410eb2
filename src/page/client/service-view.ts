/** One service port: the picture, what clients meet at each address, and each endpoint with why it is used or not. */
import { useEffect } from "preact/hooks";
import type {
  Encounter,
  ExplainedEndpoint,
  ExplainedFrontend,
  ExplainedUse,
  PortExplanation,
} from "../../explain/explanation.ts";
import { KIND_WORDS } from "../../explain/words.ts";
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
  return html`
    <p class="crumb"><a href="#/services">Services</a></p>
    <h1>${key}</h1>
    <p class="bar count-bar">
      <button type="button" disabled=${count.isAsking || question.failure !== ""}
        onClick=${() => count.ask({ key, traffic: "1" })}>Count connections</button>
      <small role="status">${count.failure || said}</small>
    </p>
    ${waiting(question) ?? question.answer?.families.map(({ explanation, picture }) => familyPart(explanation, picture, counts))}`;
}

type Counts = ReadonlyMap<string, string>;
type Drawn = ServiceAnswer["families"][number]["picture"];

function familyPart(explained: PortExplanation, picture: Drawn, counts: Counts | undefined) {
  const { family, type, protocol, frontends, endpoints, causes, decisions, kernel, node, zone, passedOver } = explained;
  const sentences = passedOver.map(({ slice, why }) => `${slice}: ${why}`);
  return html`<section aria-label=${family} key=${family}>
    <h2>${family}</h2>
    <p class="facts">${`${type}, ${protocol}, seen from ${node}${zone === null ? "" : ` in ${zone}`}`}</p>
    ${scrolling(`Picture, ${family}`, pictureOf(withCounts(picture, explained, counts)))}
    <ul class="decisions">${itemsOf([...causes, ...decisions])}</ul>
    <h3>Addresses</h3>
    ${frontends.map((one) => frontendPart(one, protocol, counts?.get(keyOf(family, one)) ?? ""))}
    <h3>Endpoints (${endpoints.length})</h3>
    ${endpoints.length === 0 ? html`<p>None.</p>` : scrolling(`Endpoints, ${family}`, endpointTable(endpoints, family, counts))}
    ${sentences.length > 0 && html`<h3>Passed over</h3><ul>${itemsOf(sentences)}</ul>`}
    <details><summary>In the kernel (${kernel.length})</summary><ul class="kernel">${kernel.map(
      ({ kind, name, where, purpose }) =>
        html`<li><code>${name}</code><small>${`${kind} in ${where}${purpose === "" ? "" : `: ${purpose}`}`}</small></li>`,
    )}</ul></details>
  </section>`;
}

function endpointTable(all: readonly ExplainedEndpoint[], family: string, counts: Counts | undefined) {
  const columns: (readonly [name: string, cell: (endpoint: ExplainedEndpoint) => Children] | false)[] = [
    ["Endpoint", ({ address }) => html`<code>${address}</code>`],
    all.some(({ pod }) => pod !== null) && ["Pod", ({ pod }) => pod ?? "not said"],
    ["Node", nodeCell],
    ["State", ({ state }) => badge(state === "ready" ? "good" : "warn", state)],
    all.some(({ cluster }) => cluster !== null) && ["Cluster policy", ({ cluster }) => useCell(cluster)],
    all.some(({ local }) => local !== null) && ["Local policy", ({ local }) => useCell(local)],
    counts !== undefined && ["Connections", (endpoint) => counts.get(keyOf(family, endpoint)) || "not known"],
  ];
  const shown = columns.filter((column) => column !== false);
  const names = shown.map(([name]) => name);
  return tableOf(
    `Endpoints, ${family}`,
    names,
    all.map((endpoint) => shown.map(([, cellOf]) => cellOf(endpoint))),
  );
}

const WHO: Readonly<Record<Encounter["position"], string>> = {
  pod: "a pod of this node",
  node: "this node",
  "other-node": "another node",
  outside: "outside",
};

function frontendPart(
  { kind, address, port, policy, owner, answersAt, clients }: ExplainedFrontend,
  protocol: string,
  counted: string,
) {
  const to = { to: address ?? "", port: `${port}`, protocol: protocol.toLowerCase() };
  const facts = `policy ${policy}${answersAt === null ? "" : `, at ${answersAt}`}${counted === "" ? "" : `; ${counted}`}`;
  return html`<div class="frontend">
    <h4>${KIND_WORDS[kind]} <code>${address === null ? port : joinHostPort(address, port)}</code> <small>${facts}</small>
      ${address !== null && owner === null && html`<a class="follow" href=${urlOf("trace", to)}>follow a packet</a>`}</h4>
    ${
      owner !== null
        ? html`<p>${`Belongs to ${owner}, and does not lead here.`}</p>`
        : html`<dl class="clients">${clients.map(
            ({ position, outcome, words }) => html`<dt>${WHO[position]}</dt>
              <dd>${badge(outcome === "answered" ? "good" : "bad", outcome === "passed-by" ? "not taken" : outcome)} ${words}</dd>`,
          )}</dl>`
    }
  </div>`;
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
  const share = Number((use.share * 100).toFixed(1));
  return html`<meter min="0" max="1" value=${use.share} aria-hidden="true" /> ${`${share} %${use.why === "ready" ? "" : `: ${use.why}`}`}`;
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
