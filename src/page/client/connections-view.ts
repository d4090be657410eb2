/** Connections through this node, asked for while they are looked at. */
import type { ConnectionsAnswer, TextTable } from "../answers.ts";
import { ask } from "./ask.ts";
import { el, plain } from "./dom.ts";
import type { View } from "./state.ts";

export const connectionsView: View = (main, query) => {
  let asking: AbortController | undefined;
  let timer = 0;
  let pauseMs = 2000;
  const search = el("input", {
    ...{ type: "search", id: "search", placeholder: "Service, client, endpoint, state …", autocomplete: "off" },
    ...{ spellcheck: "false", value: query.get("search") ?? "" },
    input: () => restart(150),
  });
  const count = el("p", { role: "status", class: "count" }, "Asking …");
  const flows = el("table", { class: "endpoints" });
  const counts = el("table", { class: "endpoints" });
  const countsHeading = el("h2", {}, "Most connections");
  const notes = el("ul", { class: "decisions" });
  main.append(
    el("h1", {}, "Connections"),
    el(
      "form",
      { class: "bar", role: "search", submit: (event) => event.preventDefault() },
      el("label", { for: "search" }, "Search"),
      search,
    ),
    count,
    flows,
    countsHeading,
    counts,
    notes,
  );

  function restart(delayMs: number): void {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void load(), delayMs);
  }

  async function load(): Promise<void> {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    const words = search.value;
    history.replaceState(null, "", `#/connections${words === "" ? "" : `?${new URLSearchParams({ search: words })}`}`);
    try {
      const answer = await ask<ConnectionsAnswer>("api/connections", { search: words }, signal);
      if (signal.aborted) return;
      const { total, matching } = answer;
      pauseMs = answer.pauseMs;
      const shown = answer.flows.rows.length < matching ? `, ${answer.flows.rows.length} shown` : "";
      count.textContent = `${matching === total ? "" : `${matching} of `}${total} connection${total === 1 ? "" : "s"}${shown}`;
      fillTable(flows, "Connections", answer.flows);
      countsHeading.hidden = answer.counts.rows.length === 0;
      fillTable(counts, "Service ports with most connections", answer.counts);
      notes.replaceChildren(...answer.notes.map((note) => el("li", {}, plain(note))));
    } catch (error) {
      if (signal.aborted) return;
      count.textContent = error instanceof Error ? plain(error.message) : "No answer";
    }
    // What is not seen is not asked for.
    if (!document.hidden) restart(pauseMs);
  }

  const onVisible = (): void => {
    if (!document.hidden) restart(0);
  };
  document.addEventListener("visibilitychange", onVisible);
  void load();
  return () => {
    document.removeEventListener("visibilitychange", onVisible);
    window.clearTimeout(timer);
    asking?.abort();
  };
};

/** Columns without any text are left out. */
function fillTable(table: HTMLTableElement, caption: string, { head, rows }: TextTable): void {
  const used = [...head.keys()].filter((at) => rows.some((cells) => cells[at] !== ""));
  const names = used.map((at) => sentence(head[at] ?? ""));
  table.hidden = rows.length === 0;
  table.replaceChildren(
    el("caption", { class: "hidden" }, caption),
    el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)))),
    el(
      "tbody",
      {},
      ...rows.map((cells) => el("tr", {}, ...used.map((at, index) => cellOf(cells[at] ?? "", names[index] ?? "", at)))),
    ),
  );
}

function cellOf(text: string, name: string, at: number): HTMLElement {
  if (at === 0) return el("th", { scope: "row" }, plain(text));
  return el("td", { "data-head": name }, plain(text));
}

/** `ASKED FOR` as `Asked for`. */
function sentence(text: string): string {
  return text === "RTT" ? text : `${text.slice(0, 1)}${text.slice(1).toLowerCase()}`;
}
