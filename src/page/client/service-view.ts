/** One service port: the picture, what clients meet at each address, each endpoint and why it is used or not. */
import type {
  Encounter,
  ExplainedEndpoint,
  ExplainedFrontend,
  ExplainedUse,
  Picture,
  PortExplanation,
  ServiceAnswer,
} from "../answers.ts";
import { ask, FAILED_PAUSE_MS } from "./ask.ts";
import { el, plain } from "./dom.ts";
import { pictureOf } from "./picture.ts";
import type { View } from "./state.ts";

export const serviceView: View = (main, query, state) => {
  const key = query.get("key") ?? "";
  document.title = `${plain(key)} · kube-proxy`;
  const body = el("div", {}, el("p", { role: "status" }, "Asking …"));
  main.append(el("p", { class: "crumb" }, el("a", { href: "#/services" }, "Services")), el("h1", {}, plain(key)), body);
  let asking: AbortController | undefined;
  let timer = 0;
  let shown = "";
  let isCounting = false;
  const count = el(
    "button",
    {
      type: "button",
      click: () => {
        count.disabled = true;
        void countAll();
      },
    },
    "Count connections",
  );
  const counts = new Counts();
  const said = el("small", { role: "status" }, "Asks the kernel once.");
  body.before(el("p", { class: "bar count-bar" }, count, said));

  async function load(withTraffic = false): Promise<void> {
    window.clearTimeout(timer);
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const answer = await ask<ServiceAnswer>("api/service", withTraffic ? { key, traffic: "1" } : { key }, signal);
      if (withTraffic && !signal.aborted) {
        counts.take(answer);
        const time = counts.time?.toLocaleTimeString() ?? "";
        said.textContent = plain([`As of ${time}.`, ...counts.notes].join(" "));
      }
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
    } catch (error) {
      if (signal.aborted) return;
      count.disabled = true;
      const text = error instanceof Error ? plain(error.message) : "No answer";
      if (text !== shown) body.replaceChildren(el("p", { role: "alert", class: "error" }, text));
      shown = text;
      timer = window.setTimeout(() => void load(), FAILED_PAUSE_MS);
    }
  }

  /** A count may take longer than it is between two changes: it goes on, and what has changed is asked for after it. */
  async function countAll(): Promise<void> {
    const { place } = state;
    isCounting = true;
    await load(true);
    isCounting = false;
    if (state.place !== place && asking?.signal.aborted === false) void load();
  }

  let seen = state.place;
  const stopListening = state.onChange(() => {
    if (state.place === seen) return;
    seen = state.place;
    if (!isCounting) void load();
  });
  void load();
  return () => {
    stopListening();
    window.clearTimeout(timer);
    asking?.abort();
  };
};

function familyPart(explained: PortExplanation, picture: SVGElement, counts: Counts): HTMLElement {
  const { family, type, protocol, frontends, endpoints, causes, decisions, kernel, node, zone, passedOver } = explained;
  const hasLocal = endpoints.some(({ local }) => local !== null);
  const hasCluster = endpoints.some(({ cluster }) => cluster !== null);
  const hasPods = endpoints.some(({ pod }) => pod !== null);
  const head = [
    "Endpoint",
    ...(hasPods ? ["Pod"] : []),
    "Node",
    "State",
    ...(hasCluster ? ["Cluster policy"] : []),
    ...(hasLocal ? ["Local policy"] : []),
    ...(counts.time === undefined ? [] : ["Connections"]),
  ];
  return el(
    "section",
    { "aria-label": family },
    el("h2", {}, family),
    el("p", { class: "facts" }, plain(`${type}, ${protocol}, seen from ${node}${zone === null ? "" : ` in ${zone}`}`)),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Picture, ${family}` }, picture),
    el("ul", { class: "decisions" }, ...[...causes, ...decisions].map((sentence) => el("li", {}, plain(sentence)))),
    el("h3", {}, "Addresses"),
    ...frontends.map((one) => frontendPart(one, protocol, countedText(counts.ofFrontend(family, one)))),
    el("h3", {}, `Endpoints (${endpoints.length})`),
    endpoints.length === 0
      ? el("p", {}, "None.")
      : el(
          "div",
          { class: "scroll", tabindex: "0", role: "group", "aria-label": `Endpoints, ${family}` },
          el(
            "table",
            { class: "endpoints" },
            el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col" }, text)))),
            el(
              "tbody",
              {},
              ...endpoints.map((endpoint) => {
                const row = endpointRow(endpoint, { hasPods, hasCluster, hasLocal });
                if (counts.time !== undefined) {
                  const text = countedText(counts.ofEndpoint(family, endpoint.address));
                  row.append(el("td", { class: "number" }, text === "" ? "not known" : text));
                }
                // Where a row is a block of lines, each says what it is.
                for (const [at, cell] of [...row.cells].entries()) cell.dataset.head = head[at] ?? "";
                return row;
              }),
            ),
          ),
        ),
    passedOver.length > 0 && el("h3", {}, "Passed over"),
    passedOver.length > 0 &&
      el("ul", {}, ...passedOver.map(({ slice, why }) => el("li", {}, plain(`${slice}: ${why}`)))),
    el(
      "details",
      { id: `kernel-${family}` },
      el("summary", {}, `In the kernel (${kernel.length})`),
      el(
        "ul",
        { class: "kernel" },
        ...kernel.map(({ kind, name, where, purpose }) =>
          el(
            "li",
            {},
            el("code", {}, plain(name)),
            el("small", {}, plain(`${kind} in ${where}${purpose === "" ? "" : `: ${purpose}`}`)),
          ),
        ),
      ),
    ),
  );
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
  return el(
    "div",
    { class: "frontend" },
    el(
      "h4",
      {},
      `${KINDS[kind]} `,
      el("code", {}, plain(at)),
      el(
        "small",
        {},
        plain(
          ` policy ${policy}${answersAt === null ? "" : `, at ${answersAt}`}${counted === "" ? "" : `; ${counted}`}`,
        ),
      ),
      address !== null &&
        owner === null &&
        el("a", { class: "follow", href: `#/trace?${new URLSearchParams(to)}` }, "follow a packet"),
    ),
    owner !== null
      ? el("p", {}, plain(`Belongs to ${owner}, and does not lead here.`))
      : el(
          "dl",
          { class: "clients" },
          ...clients.flatMap((client) => [
            el("dt", {}, WHO[client.position]),
            el(
              "dd",
              {},
              el("span", { class: `badge ${client.outcome === "answered" ? "good" : "bad"}` }, outcomeText(client)),
              plain(` ${client.words}`),
            ),
          ]),
        ),
  );
}

const outcomeText = ({ outcome }: Encounter): string => (outcome === "passed-by" ? "not taken" : outcome);

/** Where the API server leads to a node's page: what a browser asks then says where those of the others are. */
const THROUGH_API_SERVER = /^(.*\/api\/v1\/nodes\/)[^/]+?((?::|%3A)\d+\/proxy\/)/i;

/** Leads to the same view on that node's page, where it is known where that is. */
function nodeName(node: string): HTMLElement | string {
  const [, before, behind] = THROUGH_API_SERVER.exec(location.pathname) ?? [];
  if (before === undefined) return plain(node);
  return el("a", { href: `${before}${encodeURIComponent(node)}${behind}${location.hash}` }, plain(node));
}

function endpointRow(
  { address, pod, node, state, isLocal, cluster, local }: ExplainedEndpoint,
  { hasPods, hasCluster, hasLocal }: Readonly<Record<"hasPods" | "hasCluster" | "hasLocal", boolean>>,
): HTMLTableRowElement {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, el("code", {}, plain(address))),
    hasPods && el("td", {}, plain(pod ?? "not said")),
    node === ""
      ? el("td", {}, isLocal ? "here" : "not said")
      : el("td", {}, isLocal ? plain(`${node} (here)`) : nodeName(node)),
    el("td", {}, el("span", { class: `badge ${state === "ready" ? "good" : "warn"}` }, state)),
    hasCluster && useCell(cluster),
    hasLocal && useCell(local),
  );
}

function useCell(use: ExplainedUse | null): HTMLElement {
  if (use === null) return el("td", {}, "not asked");
  if (!use.used) return el("td", { class: "out" }, plain(`left out: ${use.why}`));
  const share = Number((use.share * 100).toFixed(1));
  return el(
    "td",
    {},
    el("meter", { min: 0, max: 1, value: use.share, "aria-hidden": "true" }),
    plain(` ${share} %${use.why === "ready" ? "" : `: ${use.why}`}`),
  );
}

export interface Counted {
  readonly open: number | null;
  readonly counted: number | null;
}

export class Counts {
  readonly #known = new Map<string, Counted>();
  /** Undefined before the first time. */
  time: Date | undefined;
  notes: readonly string[] = [];

  take({ families }: ServiceAnswer): void {
    this.#known.clear();
    this.time = new Date();
    this.notes = [...new Set(families.flatMap(({ explanation }) => explanation.trafficNotes ?? []))];
    for (const { explanation } of families) {
      const { family, frontends, endpoints } = explanation;
      for (const one of frontends) this.#note(`${family} frontend ${one.address ?? ""} ${one.port}`, one);
      for (const one of endpoints) this.#note(`${family} endpoint ${one.address}`, one);
    }
  }

  ofFrontend(family: string, { address, port }: { readonly address: string | null; readonly port: number }) {
    return this.#known.get(`${family} frontend ${address ?? ""} ${port}`);
  }

  ofEndpoint(family: string, address: string): Counted | undefined {
    return this.#known.get(`${family} endpoint ${address}`);
  }

  #note(key: string, { open = null, counted = null }: { open?: number | null; counted?: number | null }): void {
    this.#known.set(key, { open, counted });
  }
}

/** The picture of a service port with what was counted in its boxes, whose ids end in `f` or `e` and a number. */
export function withCounts(
  picture: Picture,
  { family, frontends, endpoints }: PortExplanation,
  counts: Counts,
): Picture {
  const boxes = picture.boxes.map((box) => {
    const [, kind, number] = /([fe])(\d+)$/.exec(box.id) ?? [];
    const frontend = kind === "f" ? frontends[Number(number)] : undefined;
    const endpoint = kind === "e" ? endpoints[Number(number)] : undefined;
    const text = countedText(
      (frontend && counts.ofFrontend(family, frontend)) ?? (endpoint && counts.ofEndpoint(family, endpoint.address)),
    );
    return text === "" ? box : { ...box, note: [box.note, text].filter((part) => part !== "").join(", ") };
  });
  return { ...picture, boxes };
}

/** `12 open, 300 counted`; empty where nothing is known. */
function countedText(counts: Counted | undefined): string {
  if (counts === undefined) return "";
  const { open, counted } = counts;
  return [open === null ? "" : `${open} open`, counted === null ? "" : `${counted} counted`]
    .filter((text) => text !== "")
    .join(", ");
}
