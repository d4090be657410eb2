/** One service port: the picture, what clients meet at each address, and each endpoint with why it is used or not. */
import type {
  Encounter,
  ExplainedEndpoint,
  ExplainedFrontend,
  ExplainedUse,
  PortExplanation,
} from "../../explain/explanation.ts";
import type { Picture } from "../../explain/picture.ts";
import type { ServiceAnswer } from "../answers.ts";
import { Asking, ask, FAILED_PAUSE_MS } from "./ask.ts";
import { badge, el, itemsOf, plain, scrolling, tableParts } from "./dom.ts";
import { pictureOf } from "./picture.ts";
import { onNewPlace, type View } from "./state.ts";

export const serviceView: View = (main, query, state) => {
  const key = query.get("key") ?? "";
  document.title = `${plain(key)} · kube-proxy`;
  const body = el("div", {}, el("p", { role: "status" }, "Loading …"));
  main.append(el("p", { class: "crumb" }, el("a", { href: "#/services" }, "Services")), el("h1", {}, plain(key)), body);
  let shown = "";
  let isCounting = false;
  const count = el("button", { type: "button", click: () => void countAll() }, "Count connections");
  const counts = new Counts();
  const said = el("small", { role: "status" }, "Asks the kernel once.");
  body.before(el("p", { class: "bar count-bar" }, [count, said]));
  const asking = new Asking(
    async (signal) => show(await ask<ServiceAnswer>("api/service", { key }, signal), signal),
    (text) => {
      count.disabled = true;
      if (text !== shown) body.replaceChildren(el("p", { role: "alert", class: "error" }, text));
      shown = text;
      asking.soon(FAILED_PAUSE_MS);
    },
  );

  function show(answer: ServiceAnswer, signal: AbortSignal): void {
    count.disabled = false;
    const text = JSON.stringify([answer, counts.time]);
    if (signal.aborted || text === shown) return;
    shown = text;
    const open = new Set(Array.from(body.querySelectorAll("details[open]"), ({ id }) => id));
    body.replaceChildren(
      ...answer.families.map(({ explanation, picture }) =>
        familyPart(explanation, pictureOf(withCounts(picture, explanation, counts)), counts),
      ),
    );
    for (const details of body.querySelectorAll("details")) details.open = open.has(details.id);
  }

  /** A count may outlast the time between two changes: it continues, and the changes are requested after it. */
  async function countAll(): Promise<void> {
    const { place } = state;
    count.disabled = true;
    isCounting = true;
    await asking.now(async (signal) => {
      const answer = await ask<ServiceAnswer>("api/service", { key, traffic: "1" }, signal);
      if (!signal.aborted) {
        counts.take(answer);
        said.textContent = plain([`As of ${counts.time?.toLocaleTimeString()}.`, ...counts.notes].join(" "));
      }
      show(answer, signal);
    });
    isCounting = false;
    if (state.place !== place && !asking.hasEnded) void asking.now();
  }

  const stopListening = onNewPlace(state, () => {
    if (!isCounting) void asking.now();
  });
  void asking.now();
  return () => {
    stopListening();
    asking.end();
  };
};

function familyPart(explained: PortExplanation, picture: SVGElement, counts: Counts): HTMLElement {
  const { family, type, protocol, frontends, endpoints, causes, decisions, kernel, node, zone, passedOver } = explained;
  const seen = `${type}, ${protocol}, seen from ${node}${zone === null ? "" : ` in ${zone}`}`;
  const kernelItems = kernel.map(({ kind, name, where, purpose }) => {
    const words = `${kind} in ${where}${purpose === "" ? "" : `: ${purpose}`}`;
    return el("li", {}, [el("code", {}, plain(name)), el("small", {}, plain(words))]);
  });
  const sentences = passedOver.map(({ slice, why }) => `${slice}: ${why}`);
  return el("section", { "aria-label": family }, [
    el("h2", {}, family),
    el("p", { class: "facts" }, plain(seen)),
    scrolling(`Picture, ${family}`, picture),
    el("ul", { class: "decisions" }, itemsOf([...causes, ...decisions])),
    el("h3", {}, "Addresses"),
    ...frontends.map((one) => frontendPart(one, protocol, counts.of(family, one))),
    el("h3", {}, `Endpoints (${endpoints.length})`),
    endpoints.length === 0
      ? el("p", {}, "None.")
      : scrolling(`Endpoints, ${family}`, endpointTable(endpoints, family, counts)),
    ...(sentences.length > 0 ? [el("h3", {}, "Passed over"), el("ul", {}, itemsOf(sentences))] : []),
    el("details", { id: `kernel-${family}` }, [
      el("summary", {}, `In the kernel (${kernel.length})`),
      el("ul", { class: "kernel" }, kernelItems),
    ]),
  ]);
}

/** A column, and how to make its cell for an endpoint. */
type Column = readonly [name: string, cell: (endpoint: ExplainedEndpoint) => HTMLTableCellElement];

function endpointTable(all: readonly ExplainedEndpoint[], family: string, counts: Counts): HTMLElement {
  const columns: (Column | false)[] = [
    ["Endpoint", ({ address }) => el("th", { scope: "row" }, el("code", {}, plain(address)))],
    all.some(({ pod }) => pod !== null) && ["Pod", ({ pod }) => el("td", {}, plain(pod ?? "not said"))],
    ["Node", nodeCell],
    ["State", ({ state }) => el("td", {}, badge(state === "ready" ? "good" : "warn", state))],
    all.some(({ cluster }) => cluster !== null) && ["Cluster policy", ({ cluster }) => useCell(cluster)],
    all.some(({ local }) => local !== null) && ["Local policy", ({ local }) => useCell(local)],
    counts.time !== undefined && [
      "Connections",
      (endpoint) => el("td", { class: "number" }, counts.of(family, endpoint) || "not known"),
    ],
  ];
  const shown = columns.filter((column) => column !== false);
  const rows = all.map((endpoint) => {
    const cells = shown.map(([name, cellOf]) => {
      const cell = cellOf(endpoint);
      // In narrow windows a row becomes a block of lines, each with its column name.
      cell.dataset.head = name;
      return cell;
    });
    return el("tr", {}, cells);
  });
  const names = shown.map(([name]) => name);
  return el("table", { class: "endpoints" }, tableParts(names, el("tbody", {}, rows)));
}

const KINDS: Readonly<Record<ExplainedFrontend["kind"], string>> = {
  "cluster-ip": "cluster IP",
  "load-balancer": "load balancer",
  "external-ip": "external IP",
  "node-port": "node port",
};
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
): HTMLElement {
  const at = address === null ? `${port}` : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  const to = { to: address ?? "", port: `${port}`, protocol: protocol.toLowerCase() };
  const facts = ` policy ${policy}${answersAt === null ? "" : `, at ${answersAt}`}${counted === "" ? "" : `; ${counted}`}`;
  const met = clients.flatMap((client) => [
    el("dt", {}, WHO[client.position]),
    el("dd", {}, [
      badge(client.outcome === "answered" ? "good" : "bad", outcomeText(client)),
      plain(` ${client.words}`),
    ]),
  ]);
  return el("div", { class: "frontend" }, [
    el("h4", {}, [
      `${KINDS[kind]} `,
      el("code", {}, plain(at)),
      el("small", {}, plain(facts)),
      address !== null &&
        owner === null &&
        el("a", { class: "follow", href: `#/trace?${new URLSearchParams(to)}` }, "follow a packet"),
    ]),
    owner !== null
      ? el("p", {}, plain(`Belongs to ${owner}, and does not lead here.`))
      : el("dl", { class: "clients" }, met),
  ]);
}

const outcomeText = ({ outcome }: Encounter): string => (outcome === "passed-by" ? "not taken" : outcome);

/** The path of a node's page through the API server, from which the paths of other nodes' pages follow. */
const THROUGH_API_SERVER = /^(.*\/api\/v1\/nodes\/)[^/]+?((?::|%3A)\d+\/proxy\/)/i;

/** The node's name, as a link to the same view on its page if the path of that page is known. */
function nodeName(node: string): HTMLElement | string {
  const [, before, behind] = THROUGH_API_SERVER.exec(location.pathname) ?? [];
  if (before === undefined) return plain(node);
  return el("a", { href: `${before}${encodeURIComponent(node)}${behind}${location.hash}` }, plain(node));
}

function nodeCell({ node, isLocal }: ExplainedEndpoint): HTMLTableCellElement {
  if (node === "") return el("td", {}, isLocal ? "here" : "not said");
  return el("td", {}, isLocal ? plain(`${node} (here)`) : nodeName(node));
}

function useCell(use: ExplainedUse | null): HTMLTableCellElement {
  if (use === null) return el("td", {}, "not asked");
  if (!use.used) return el("td", { class: "out" }, plain(`left out: ${use.why}`));
  const share = Number((use.share * 100).toFixed(1));
  return el("td", {}, [
    el("meter", { min: 0, max: 1, value: use.share, "aria-hidden": "true" }),
    plain(` ${share} %${use.why === "ready" ? "" : `: ${use.why}`}`),
  ]);
}

/** The last counts, in words. */
class Counts {
  readonly #known = new Map<string, string>();
  /** When they were counted; undefined before the first time. */
  time: Date | undefined;
  notes: readonly string[] = [];

  take({ families }: ServiceAnswer): void {
    this.#known.clear();
    this.time = new Date();
    this.notes = [...new Set(families.flatMap(({ explanation }) => explanation.trafficNotes ?? []))];
    for (const { family, frontends, endpoints } of families.map(({ explanation }) => explanation)) {
      for (const one of [...frontends, ...endpoints]) this.#known.set(keyOf(family, one), countedText(one));
    }
  }

  /** Empty if nothing is known. */
  of(family: string, one: Place): string {
    return this.#known.get(keyOf(family, one)) ?? "";
  }
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
function withCounts(picture: Picture, { family, frontends, endpoints }: PortExplanation, counts: Counts): Picture {
  const boxes = picture.boxes.map((box) => {
    const [, kind, number] = /([fe])(\d+)$/.exec(box.id) ?? [];
    const one = (kind === "f" ? frontends : endpoints)[Number(number)];
    const text = one === undefined ? "" : counts.of(family, one);
    return { ...box, note: [box.note, text].filter((part) => part !== "").join(", ") };
  });
  return { ...picture, boxes };
}
