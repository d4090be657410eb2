/** The service table, one page from the server at a time. */
import type { ServiceFamilyRow, ServiceRow, ServiceTable } from "../answers.ts";
import { Asking, ask, FAILED_PAUSE_MS } from "./ask.ts";
import { badge, el, labelled, plain, searchField, tableParts } from "./dom.ts";
import { onNewPlace, type View } from "./state.ts";

const ROWS = 100;
/** The shortest pause between two requests for the table after changes. */
const AGAIN_MS = 2000;

export const servicesView: View = (main, query, state) => {
  let offset = Math.max(0, Number(query.get("offset") ?? 0) || 0);
  let isTroubled = query.get("only") === "troubled";
  let askedMs = 0;

  const search = searchField(query, "name, address, port …", restart);
  const only = el("input", { type: "checkbox", id: "only", checked: isTroubled, change: restart });
  const namespace = el("select", { id: "namespace", change: restart });
  showNamespaces([], query.get("namespace") ?? "");
  const count = el("p", { role: "status", class: "count" }, "Loading …");
  const body = el("tbody");
  const previous = el("button", { type: "button", click: () => turn(-ROWS) }, "Previous");
  const next = el("button", { type: "button", click: () => turn(ROWS) }, "Next");
  const pages = el("p", { class: "pages", hidden: true }, [previous, " ", next]);
  const caption = el("caption", { class: "hidden" }, "Service ports that this node serves");
  main.append(
    el("h1", {}, "Services"),
    el("form", { class: "bar", role: "search", submit: (event) => event.preventDefault() }, [
      ...labelled("Search", search),
      el("span", { class: "check" }, labelled("in", namespace)),
      el("span", { class: "check" }, labelled("only where clients get no answer", only).toReversed()),
    ]),
    count,
    el("table", { class: "services" }, tableParts(["Service port", "Addresses", "Endpoints", "State"], body, caption)),
    pages,
  );
  const asking = new Asking(load, (text) => {
    say(text);
    asking.soon(FAILED_PAUSE_MS);
  });

  function restart(): void {
    offset = 0;
    isTroubled = only.checked;
    // Drops the answer to the previous search.
    asking.end();
    asking.soon(150);
  }

  function showNamespaces(names: readonly string[], chosen: string): void {
    const shown = [...new Set(["", ...names, chosen])];
    if (namespace.options.length === shown.length && shown.every((name, at) => namespace.options[at]?.value === name))
      return;
    const texts = shown.map((name) => el("option", { value: name }, name === "" ? "all namespaces" : plain(name)));
    namespace.replaceChildren(...texts);
    namespace.value = chosen;
  }

  function turn(by: number): void {
    offset = Math.max(0, offset + by);
    void asking.now().then(() => main.querySelector("h1")?.scrollIntoView());
  }

  async function load(signal: AbortSignal): Promise<void> {
    askedMs = Date.now();
    const question = {
      search: search.value,
      namespace: namespace.value,
      only: isTroubled ? "troubled" : "",
      offset: offset === 0 ? "" : `${offset}`,
    };
    // The back button and shared links return to what is shown now.
    const said = new URLSearchParams(Object.entries(question).filter(([, value]) => value !== ""));
    history.replaceState(null, "", said.size === 0 ? "#/services" : `#/services?${said}`);
    const table = await ask<ServiceTable>("api/services", { ...question, limit: `${ROWS}` }, signal);
    if (signal.aborted) return;
    showNamespaces(table.namespaces, namespace.value);
    if (table.rows.length > 0 || offset === 0) {
      showTable(table);
      return;
    }
    // The current page no longer exists.
    offset = Math.max(0, Math.ceil(table.matching / ROWS) - 1) * ROWS;
    await load(signal);
  }

  /** Leaves an unchanged status alone, so that screen readers do not repeat it. */
  function say(text: string): void {
    if (count.textContent !== text) count.textContent = text;
  }

  function showTable({ total, matching, rows }: ServiceTable): void {
    const range = matching > ROWS ? `, ${offset + 1} to ${offset + rows.length} shown` : "";
    say(`${matching === total ? "" : `${matching} of `}${total} service port${total === 1 ? "" : "s"}${range}`);
    // Keeps the keyboard focus on its row.
    const focused = body.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : undefined;
    body.replaceChildren(...rows.map(rowOf));
    if (rows.length === 0) body.append(el("tr", {}, el("td", { colspan: 4, class: "empty" }, "Nothing matches.")));
    for (const link of body.querySelectorAll("a")) if (link.getAttribute("href") === focused) link.focus();
    previous.disabled = offset === 0;
    next.disabled = offset + rows.length >= matching;
    pages.hidden = matching <= ROWS;
  }

  const stopListening = onNewPlace(state, () => asking.soon(Math.max(0, askedMs + AGAIN_MS - Date.now())));
  void asking.now();
  return () => {
    stopListening();
    asking.end();
  };
};

function rowOf({ key, service, portName, protocol, families, trouble }: ServiceRow): HTMLElement {
  const name = portName === "" ? service : `${service}:${portName}`;
  const counts = families.map(({ used, endpoints }) => (used === endpoints ? `${used}` : `${used} of ${endpoints}`));
  const isSame = new Set(counts).size === 1;
  const endpoints = isSame ? counts[0] : families.map(({ family }, index) => `${family}: ${counts[index]}`).join(", ");
  const link = el("a", { href: `#/service?${new URLSearchParams({ key })}` }, plain(name));
  return el("tr", {}, [
    el("th", { scope: "row" }, [link, " ", el("small", {}, protocol)]),
    el("td", { class: "addresses" }, families.flatMap(addressesOf)),
    el("td", { class: "number" }, endpoints),
    el("td", {}, trouble === null ? badge("good", "answers") : badge("bad", trouble)),
  ]);
}

/** Node ports are the same for both families. */
function addressesOf({ clusterIP, others, nodePort }: ServiceFamilyRow, index: number): HTMLElement[] {
  const texts = [clusterIP, ...others.slice(0, 2), ...(others.length > 2 ? [`and ${others.length - 2} more`] : [])];
  if (nodePort !== 0 && index === 0) texts.push(`node port ${nodePort}`);
  return texts.map((text) => el("code", {}, plain(text)));
}
