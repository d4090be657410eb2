/** Connections through this node, requested while the view is visible. */
import { useEffect, useState } from "preact/hooks";
import type { ConnectionsAnswer, TextTable } from "../answers.ts";
import { html, itemsOf, searchField, tableOf, urlOf, useQuestion, type ViewProps } from "./ui.ts";

export function ConnectionsView({ query }: ViewProps) {
  const [search, setSearch] = useState(query.get("search") ?? "");
  const question = useQuestion<ConnectionsAnswer>("api/connections", { search });
  const { answer, failure } = question;
  useEffect(() => history.replaceState(null, "", urlOf("connections", { search })), [search]);
  // Only asks again while the page is visible.
  useEffect(() => {
    const again = () => {
      if (!document.hidden && answer !== undefined) question.again(answer.pauseMs);
    };
    again();
    document.addEventListener("visibilitychange", again);
    return () => document.removeEventListener("visibilitychange", again);
  }, [answer]);
  return html`
    <h1>Connections</h1>
    <form class="bar" role="search" onSubmit=${(event: Event) => event.preventDefault()}>
      ${searchField(search, "Service, client, endpoint, state …", setSearch)}
    </form>
    <p role="status" class="count">${failure || countText(answer)}</p>
    ${answer !== undefined && filledTable("Connections", answer.flows)}
    ${answer !== undefined && answer.counts.rows.length > 0 && html`<h2>Most connections</h2>`}
    ${answer !== undefined && filledTable("Service ports with most connections", answer.counts)}
    <ul class="decisions">${itemsOf(answer?.notes ?? [])}</ul>`;
}

function countText(answer: ConnectionsAnswer | undefined): string {
  if (answer === undefined) return "Loading …";
  const { matching, total, flows } = answer;
  const shown = flows.rows.length < matching ? `, ${flows.rows.length} shown` : "";
  return `${matching === total ? "" : `${matching} of `}${total} connection${total === 1 ? "" : "s"}${shown}`;
}

/** Leaves out columns without any text. */
function filledTable(caption: string, { head, rows }: TextTable) {
  const used = [...head.keys()].filter((at) => rows.some((cells) => cells[at] !== ""));
  const names = used.map((at) => sentence(head[at] ?? ""));
  return (
    rows.length > 0 &&
    tableOf(
      caption,
      names,
      rows.map((cells) => used.map((at) => cells[at] ?? "")),
    )
  );
}

/** `ASKED FOR` as `Asked for`. */
function sentence(text: string): string {
  return text === "RTT" ? text : `${text.slice(0, 1)}${text.slice(1).toLowerCase()}`;
}
