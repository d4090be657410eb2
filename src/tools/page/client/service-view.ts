/** One service port: the picture, what clients meet at each address, and each endpoint with why it is used or not. */
import { useEffect, useState } from "preact/hooks";
import { joinHostPort } from "../../../net/ip.ts";
import {
  type Encounter,
  type ExplainedEndpoint,
  type ExplainedFrontend,
  type ExplainedUse,
  isUsed,
  type PortExplanation,
} from "../../explain/explanation.ts";
import { encounterWords, KIND_WORDS, POSITION_WORDS, shareText, whoWords } from "../../explain/words.ts";
import { OTHERS, type ServiceAnswer, type Talk, type YamlAnswer } from "../answers.ts";
import { namesAround } from "../named-words.ts";
import { pictureOf } from "./picture.ts";
import { countedText, FEW, type Grouping, groupsOf, servicePicture } from "./service-picture.ts";
import { type Measured, sharesPicture, talksPicture } from "./traffic-charts.ts";
import {
  badge,
  type Children,
  html,
  itemsOf,
  linked,
  nameLink,
  plain,
  scrolling,
  tableOf,
  urlOf,
  useChanges,
  useQuestion,
  type ViewProps,
  waiting,
} from "./ui.ts";

export function ServiceView({ query, state }: ViewProps) {
  useChanges(state);
  const key = query.get("key") ?? "";
  const question = useQuestion<ServiceAnswer>("api/service", { key }, state);
  const count = useQuestion<ServiceAnswer>("api/service", undefined);
  useEffect(() => {
    document.title = `${plain(key)} · kube-proxy`;
  }, []);
  const notes = new Set(count.answer?.families.flatMap(({ explanation }) => explanation.trafficNotes ?? []));
  const said =
    count.answer === undefined
      ? "Asks the kernel once."
      : [`As of ${new Date(count.askedMs).toLocaleTimeString()}.`, ...notes].join(" ");
  const explanations = question.answer?.families.map(({ explanation }) => withCounts(explanation, count.answer));
  const talksIn = (family: string) =>
    count.answer?.families.find(({ explanation }) => explanation.family === family)?.talks;
  const name = explanations?.[0]?.servicePort ?? key;
  const refusal = state.known?.answer.status.failures.find(({ subject }) => subject === name);
  const verdict = explanations && verdictOf(explanations, refusal?.reason);
  return html`
    <p class="crumb"><a href="#/services">Services</a></p>
    <h1>${key}</h1>
    ${verdict !== undefined && html`<p class=${`sentence ${verdict.kind}`}>${saying(explanations ?? [])(verdict.text)}</p>`}
    <p class="bar count-bar">
      <button type="button" disabled=${count.isAsking || question.failure !== ""}
        onClick=${() => count.ask({ key, traffic: "1" })}>Count connections</button>
      <small role="status">${count.failure || said}</small>
      <a href=${urlOf("connections", { search: name })}>its connections</a> <a href=${urlOf("syncs", { search: name.replace(/:[^:]*$/, "") })}>its syncs</a>
    </p>
    ${waiting(question)}
    ${explanations?.map((one) => html`<${FamilyPart} key=${one.family} explained=${one} talks=${talksIn(one.family)} />`)}
    ${explanations && html`<${Understood} about=${key} />`}`;
}

/** The Service's YAML, asked for when it is opened. */
function Understood({ about }: { readonly about: string }) {
  const question = useQuestion<YamlAnswer>("api/yaml", undefined);
  const ask = ({ currentTarget }: { currentTarget: HTMLDetailsElement }) =>
    currentTarget.open && question.ask({ key: about });
  return html`<details onToggle=${ask}><summary>As YAML, as this node understood it</summary>
    ${waiting(question) ?? scrolling("YAML", html`<pre>${question.answer?.yaml.split("\n").map((line) => [line, html`<br />`])}</pre>`)}</details>`;
}

interface FamilyProps {
  readonly explained: PortExplanation;
  readonly talks: readonly Talk[] | undefined;
}

function FamilyPart({ explained, talks }: FamilyProps) {
  const [by, setBy] = useState<Grouping>("node");
  const { family, type, protocol, endpoints, causes, decisions, kernel, node, zone, passedOver } = explained;
  const say = saying([explained]);
  const sentences = passedOver.map(({ slice, why }) => `${slice}: ${why}`);
  const groups = endpoints.length > FEW ? groupsOf(endpoints, by) : [];
  const id = `by-${family}`;
  return html`<section aria-label=${family}>
    <h2>${family}</h2>
    <p class="facts">${`${type}, ${protocol}, seen from ${node}${zone === null ? "" : ` in ${zone}`}`}</p>
    ${
      groups.length > 0 &&
      html`<p class="bar count-bar"><label for=${id}>Endpoints by</label><select id=${id}
        onChange=${(event: Event) => setBy((event.target as HTMLSelectElement).value as Grouping)}><option>node</option><option>zone</option></select></p>`
    }
    ${scrolling(`Picture, ${family}`, pictureOf(servicePicture(explained, by)))}
    <div class="pair">${sharesPicture(measuredOf(endpoints, groups, by), explained)}${talks && talksPart(talks, explained)}</div>
    <ul class="decisions">${itemsOf([...causes, ...decisions].map(say))}</ul>
    <h3>Addresses</h3>
    ${addressParts(explained, say)}
    <h3>Endpoints (${endpoints.length})</h3>
    ${endpoints.length === 0 ? html`<p>None.</p>` : endpointParts(explained, groups, by, say)}
    ${sentences.length > 0 && html`<h3>Passed over</h3><ul>${itemsOf(sentences.map(say))}</ul>`}
    <details><summary>In the kernel (${kernel.length})</summary><ul class="kernel">${kernel.map(
      ({ kind, name, where, purpose }) =>
        html`<li><code>${name}</code><small>${`${kind} in ${where}${purpose === "" ? "" : `: ${purpose}`}`}</small></li>`,
    )}</ul></details>
  </section>`;
}

type Groups = ReturnType<typeof groupsOf>;
type Say = (text: string) => Children;

/** Sentences about some families, with their names as links. */
function saying(families: readonly PortExplanation[]): Say {
  const names = new Map(families.flatMap((one) => [...namesAround(one)]));
  return (text) => linked(text, names, families[0]?.node);
}

function endpointParts({ endpoints: all, family }: PortExplanation, groups: Groups, by: Grouping, say: Say) {
  const columns: (readonly [name: string, cell: (endpoint: ExplainedEndpoint) => Children] | false)[] = [
    ["Endpoint", ({ address }) => html`<code>${address}</code>`],
    all.some(({ pod }) => pod !== null) && ["Pod", ({ pod }) => (pod === null ? "not said" : nameLink(pod, "pod"))],
    ["Node", nodeCell],
    ["State", ({ state }) => badge(state === "ready" ? "good" : "warn", state)],
    all.some(({ cluster }) => cluster !== null) && ["Cluster policy", ({ cluster }) => useCell(cluster, say)],
    all.some(({ local }) => local !== null) && ["Local policy", ({ local }) => useCell(local, say)],
    all.some(({ open }) => open !== undefined) && ["Connections", (one) => countedText(one) || "not known"],
  ];
  const shown = columns.filter((column) => column !== false);
  const rows = all.length > FEW ? all.toSorted((one, other) => Number(isUsed(one)) - Number(isUsed(other))) : all;
  return html`
    ${
      groups.length > 0 &&
      html`<${Paged} label=${`Endpoints by ${by}, ${family}`} names=${[by === "node" ? "Node" : "Zone", "Endpoints", "Used", "Share"]}
        all=${groups} cellsOf=${({ first, own, used, share }: Groups[number]) => [first && groupCell(first, by), own.length, used, shareText(share)]} />`
    }
    <${Paged} label=${`Endpoints, ${family}`} names=${shown.map(([name]) => name)} all=${rows}
      cellsOf=${(endpoint: ExplainedEndpoint) => shown.map(([, cellOf]) => cellOf(endpoint))} />`;
}

const groupCell = (first: ExplainedEndpoint, by: Grouping) =>
  by === "node" ? nodeCell(first) : (first.zone ?? "not said");

/** Endpoints, or beyond a few their groups. */
const measuredOf = (all: readonly ExplainedEndpoint[], groups: Groups, by: Grouping): readonly Measured[] =>
  groups.length > 0
    ? groups.map(({ own, first }) => ({ own, name: first && groupCell(first, by), title: first?.[by] || "not said" }))
    : all.map((one) => ({
        own: [one],
        name: one.pod ? nameLink(one.pod, "pod") : one.address,
        title: one.pod ?? one.address,
      }));

/** Endpoints have the names of their pods here. */
function talksPart(talks: readonly Talk[], { endpoints, servicePort }: PortExplanation) {
  const known = new Map(endpoints.map(({ address, pod }) => [address, pod ?? address]));
  const titleOf = (name: string, side: number): string =>
    side === 0 || name === OTHERS ? name : (known.get(name) ?? (name === "" ? "no endpoint known" : `stale ${name}`));
  const nameOf = (name: string, side: number): Children =>
    // Neither others nor this node: no search finds them.
    /[.:/]/.test(name)
      ? html`<a href=${urlOf("connections", { search: `${servicePort} ${name}` })}>${titleOf(name, side)}</a>`
      : titleOf(name, side);
  return talksPicture(talks, titleOf, nameOf);
}

interface PagedProps<Item> {
  readonly label: string;
  readonly names: readonly string[];
  readonly all: readonly Item[];
  readonly cellsOf: (item: Item) => readonly Children[];
}

/** A table, a page at a time. */
function Paged<Item>({ label, names, all, cellsOf }: PagedProps<Item>) {
  const [wanted, setFrom] = useState(0);
  const count = all.length;
  const from = Math.min(wanted, Math.max(0, count - 1));
  const rows = all.slice(from, from + FEW).map(cellsOf);
  return html`${scrolling(label, tableOf(label, names, rows))}
    ${
      count > FEW &&
      html`<p class="pages">${`${from + 1} to ${from + rows.length} of ${count} `}
      <button type="button" disabled=${from === 0} onClick=${() => setFrom(from - FEW)}>Previous</button>${" "}
      <button type="button" disabled=${from + FEW >= count} onClick=${() => setFrom(from + FEW)}>Next</button></p>`
    }`;
}

/** Frontends at which clients meet the same, and positions that meet the same, are one. */
function addressParts({ frontends, protocol }: PortExplanation, say: Say) {
  const groups = Map.groupBy(frontends, ({ owner, clients, policy }) => JSON.stringify([owner, clients, policy]));
  return Array.from(groups.values(), (alike) => {
    const [first] = alike;
    if (first === undefined) return undefined;
    const { owner, clients } = first;
    const met = Map.groupBy(clients, encounterWords);
    return html`<div class="frontend">
      ${alike.map((one) => frontendHeading(one, protocol))}
      ${owner !== null && html`<p>Belongs to ${nameLink(owner, "service")}, which answers there.</p>`}
      <dl class="clients">${Array.from(met.values(), (same) => [
        html`<dt>${whoWords(same)}</dt>`,
        html`<dd>${outcomeBadge(same[0]?.outcome)} ${say(same[0]?.words ?? "")}</dd>`,
      ])}</dl>
    </div>`;
  });
}

const outcomeBadge = (outcome: Encounter["outcome"] = "not-known") =>
  badge(
    outcome === "answered" ? "good" : outcome === "not-known" ? "warn" : "bad",
    outcome === "passed-by" ? "not taken" : outcome.replace("-", " "),
  );

function frontendHeading(frontend: ExplainedFrontend, protocol: string) {
  const { kind, address, port, policy, owner, answersAt } = frontend;
  const counted = countedText(frontend);
  const to = { to: address ?? "", port: `${port}`, protocol: protocol.toLowerCase() };
  const facts = `policy ${policy}${answersAt === null ? "" : `, at ${answersAt}`}${counted === "" ? "" : `; ${counted}`}`;
  return html`<h4>${KIND_WORDS[kind]} <code>${address === null ? port : joinHostPort(address, port)}</code> <small>${facts}</small>
    ${address !== null && owner === null && html`<a class="follow" href=${urlOf("trace", to)}>follow a packet</a>`}</h4>`;
}

/** The answer in a sentence, over all families. Cluster IPs are for pods and nodes: that others get no answer there is no fault. */
export function verdictOf(
  families: readonly Pick<PortExplanation, "frontends" | "causes">[],
  refusal?: string,
): { readonly kind: "good" | "warn" | "bad"; readonly text: string } {
  if (refusal !== undefined) {
    const said = `The kernel has refused its rules (${refusal}), so it is not known what clients meet.`;
    return { kind: "bad", text: `${said} As planned: ${verdictOf(families).text}` };
  }
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
    return { kind: "bad", text: `No client gets an answer. ${causes}` };
  if (failing.length === 0) {
    const isForAll = all.every((one) => isMeant(one) || isGood(one));
    const limit = isForAll ? "" : " At the cluster IP that is so for pods and this node; clients outside may get none.";
    return { kind: "good", text: `Every client gets an answer.${limit}` };
  }
  const list = (texts: readonly string[]) => [...new Set(texts)].join(", ");
  const what = failing.some(({ outcome }) => outcome === "refused" || outcome === "dropped")
    ? "get no answer"
    : "may get no answer";
  const who = list(failing.map(({ position }) => POSITION_WORDS[position]));
  const why = list(failing.map(({ words }) => words));
  const text = `Answered, but at its ${list(failing.map(({ kind }) => KIND_WORDS[kind]))} these ${what}: ${who} (${why}).`;
  return { kind: "warn", text };
}

function nodeCell({ node, isLocal }: ExplainedEndpoint) {
  if (node === "") return isLocal ? "here" : "not said";
  return html`${nameLink(node, "node", isLocal)}${isLocal && " (here)"}`;
}

function useCell(use: ExplainedUse | null, say: Say) {
  if (use === null) return "not asked";
  if (!use.used) return html`<span class="out">left out: ${say(use.why)}</span>`;
  return html`<meter min="0" max="1" value=${use.share} aria-hidden="true" /> ${shareText(use.share)}${use.why !== "ready" && [": ", say(use.why)]}`;
}

/** With the last counts of what is still there; unchanged if none were asked for. */
function withCounts(explained: PortExplanation, counted: ServiceAnswer | undefined): PortExplanation {
  if (counted === undefined) return explained;
  const { family } = explained;
  const own = counted.families.find(({ explanation }) => explanation.family === family)?.explanation;
  const counts = new Map([...(own?.frontends ?? []), ...(own?.endpoints ?? [])].map((one) => [placeOf(one), one]));
  const known = <One extends ExplainedFrontend | ExplainedEndpoint>(one: One): One => {
    const { open = null, counted: all = null } = counts.get(placeOf(one)) ?? {};
    return { ...one, open, counted: all };
  };
  return { ...explained, frontends: explained.frontends.map(known), endpoints: explained.endpoints.map(known) };
}

/** A frontend or an endpoint; an endpoint has its port in its address. */
const placeOf = (one: ExplainedFrontend | ExplainedEndpoint): string =>
  `${one.address} ${"port" in one ? one.port : ""}`;
