/** Connections through this node, requested while the view is visible. */
import type { ConnectionsAnswer, TextTable } from "../answers.ts";
import { Asking, ask } from "./ask.ts";
import { el, itemsOf, labelled, plain, searchField, tableParts } from "./dom.ts";
import type { View } from "./state.ts";

export const connectionsView: View = (main, query) => {
  let pauseMs = 2000;
  const search = searchField(query, "Service, client, endpoint, state …", () => asking.soon(150));
  const count = el("p", { role: "status", class: "count" }, "Loading …");
  const flows = el("table", { class: "endpoints" });
  const counts = el("table", { class: "endpoints" });
  const countsHeading = el("h2", {}, "Most connections");
  const notes = el("ul", { class: "decisions" });
  main.append(
    el("h1", {}, "Connections"),
    el("form", { class: "bar", role: "search", submit: (event) => event.preventDefault() }, labelled("Search", search)),
    ...[count, flows, countsHeading, counts, notes],
  );
  const asking = new Asking(load, (text) => {
    count.textContent = text;
    again();
  });

  async function load(signal: AbortSignal): Promise<void> {
    const words = search.value;
    history.replaceState(null, "", `#/connections${words === "" ? "" : `?${new URLSearchParams({ search: words })}`}`);
    const answer = await ask<ConnectionsAnswer>("api/connections", { search: words }, signal);
    if (signal.aborted) return;
    const { total, matching } = answer;
    pauseMs = answer.pauseMs;
    const shown = answer.flows.rows.length < matching ? `, ${answer.flows.rows.length} shown` : "";
    count.textContent = `${matching === total ? "" : `${matching} of `}${total} connection${total === 1 ? "" : "s"}${shown}`;
    fillTable(flows, "Connections", answer.flows);
    countsHeading.hidden = answer.counts.rows.length === 0;
    fillTable(counts, "Service ports with most connections", answer.counts);
    notes.replaceChildren(...itemsOf(answer.notes));
    again();
  }

  /** Only asks again while the page is visible. */
  function again(): void {
    if (!document.hidden) asking.soon(pauseMs);
  }

  const onVisible = (): void => {
    if (!document.hidden) asking.soon(0);
  };
  document.addEventListener("visibilitychange", onVisible);
  void asking.now();
  return () => {
    document.removeEventListener("visibilitychange", onVisible);
    asking.end();
  };
};

/** Leaves out columns without any text. */
function fillTable(table: HTMLTableElement, caption: string, { head, rows }: TextTable): void {
  const used = [...head.keys()].filter((at) => rows.some((cells) => cells[at] !== ""));
  const names = used.map((at) => sentence(head[at] ?? ""));
  const cellsOf = (cells: readonly string[]) =>
    used.map((at, index) =>
      el(at === 0 ? "th" : "td", at === 0 ? { scope: "row" } : { "data-head": names[index] }, plain(cells[at] ?? "")),
    );
  const body = rows.map((cells) => el("tr", {}, cellsOf(cells)));
  table.hidden = rows.length === 0;
  table.replaceChildren(...tableParts(names, el("tbody", {}, body), el("caption", { class: "hidden" }, caption)));
}

/** `ASKED FOR` as `Asked for`. */
function sentence(text: string): string {
  return text === "RTT" ? text : `${text.slice(0, 1)}${text.slice(1).toLowerCase()}`;
}
