/** Connections through this node, requested while the view is visible. */
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { ConnectionsAnswer, TextTable } from "../answers.ts";
import {
  type Children,
  html,
  itemsOf,
  linked,
  searchField,
  tableOf,
  urlOf,
  useQuestion,
  type ViewProps,
} from "./ui.ts";

export function ConnectionsView({ query }: ViewProps) {
  const [search, setSearch] = useState(query.get("search") ?? "");
  const question = useQuestion<ConnectionsAnswer>("api/connections", { search });
  const { answer, failure } = question;
  const names = new Map(answer?.names);
  useLayoutEffect(() => history.replaceState(null, "", urlOf("connections", { search })), [search]);
  // Only asks again while the page is visible.
  useEffect(() => {
    const again = () => {
      if (!document.hidden && answer !== undefined) question.again();
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
    ${answer !== undefined && filledTable("Service ports with most connections", answer.counts, (text, at) => (at === 0 ? toService(text) : text))}
    ${
      answer !== undefined &&
      answer.flows.rows.length > 0 &&
      html`<details open=${search !== ""}>
      <summary>Each connection</summary>${filledTable("Connections", answer.flows, (text) => linked(text, names))}${uncountedText(answer.flows)}</details>`
    }
    <ul class="decisions">${itemsOf(answer?.notes ?? [])}</ul>`;
}

function countText(answer: ConnectionsAnswer | undefined): string {
  if (answer === undefined) return "Loading …";
  const { matching, total, flows } = answer;
  const shown = flows.rows.length < matching ? `, ${flows.rows.length} shown` : "";
  return `${matching === total ? "" : `${matching} of `}${total} connection${total === 1 ? "" : "s"}${shown}`;
}

/** What the kernel does not count is a sentence in place of columns of question marks. */
function uncountedText({ head, rows }: TextTable) {
  const unknown = [...head.keys()].filter((at) => rows.some((cells) => cells[at] === "?") && !isTold(rows, at));
  if (unknown.length === 0) return undefined;
  const names = unknown.map((at) => sentence(head[at] ?? "").toLowerCase()).join(", ");
  return html`<p class="facts">Not known: ${names}. The kernel counts packets and bytes of later connections after${" "}
    <code>sysctl -w net.netfilter.nf_conntrack_acct=1</code>, and keeps their age after${" "}
    <code>sysctl -w net.netfilter.nf_conntrack_timestamp=1</code>. Both are off by default; together they cost a short
    connection about 1.8 µs of processor time where that was measured (95 %: −0.3 to 3.2).</p>`;
}

/** `shop/web:http TCP IPv4`, as a link to that Service. */
const toService = (text: string) =>
  html`<a href=${urlOf("services", { search: text.replace(/ .*$/, "") })}>${text}</a>`;

const isTold = (rows: TextTable["rows"], at: number): boolean => rows.some((cells) => !/^[-?]?$/.test(cells[at] ?? ""));

/** Leaves out columns that say nothing. */
function filledTable(caption: string, { head, rows }: TextTable, cellOf: (text: string, at: number) => Children) {
  const used = [...head.keys()].filter((at) => isTold(rows, at));
  const names = used.map((at) => sentence(head[at] ?? ""));
  return (
    rows.length > 0 &&
    tableOf(
      caption,
      names,
      rows.map((cells) => used.map((at) => cellOf(cells[at] ?? "", at))),
    )
  );
}

/** `ASKED FOR` as `Asked for`. */
function sentence(text: string): string {
  return text === "RTT" ? text : `${text.slice(0, 1)}${text.slice(1).toLowerCase()}`;
}
