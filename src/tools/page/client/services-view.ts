/** The service table, one page from the server at a time. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ServiceFamilyRow, ServiceRow, ServiceTable } from "../answers.ts";
import { badge, html, searchField, tableOf, urlOf, useQuestion, type ViewProps } from "./ui.ts";

const ROWS = 100;

export function ServicesView({ query, state }: ViewProps) {
  const [asked, setAsked] = useState({
    search: query.get("search") ?? "",
    namespace: query.get("namespace") ?? "",
    sort: query.get("sort") ?? "",
    offset: Number(query.get("offset")) > 0 ? `${Number(query.get("offset"))}` : "",
  });
  const opens = useRef(false);
  const change = (changes: Partial<typeof asked>): void => {
    opens.current = false;
    setAsked((last) => ({ ...last, offset: "", ...changes }));
  };
  const heading = useRef<HTMLHeadingElement>(null);
  const question = useQuestion<ServiceTable>("api/services", { ...asked, limit: `${ROWS}` }, state);
  // The back button and shared links return to what is shown now. At once: later, it would undo where a person goes meanwhile.
  useLayoutEffect(() => history.replaceState(null, "", urlOf("services", asked)), [asked]);
  const { answer, failure } = question;
  const offset = Number(asked.offset);
  const { matching = 0, rows = [] } = answer ?? {};
  useEffect(() => {
    const [only] = rows;
    // The current page no longer exists.
    if (answer !== undefined && only === undefined && offset > 0)
      turn(Math.max(0, Math.ceil(matching / ROWS) - 1) * ROWS);
    // The answer to what is typed may still have been on its way.
    if (opens.current && matching === 1 && only !== undefined) location.hash = urlOf("service", { key: only.key });
    opens.current = false;
  }, [answer]);
  function submit(event: Event): void {
    event.preventDefault();
    opens.current = true;
    question.ask({ ...asked, limit: `${ROWS}` });
  }
  function turn(to: number): void {
    change({ offset: to > 0 ? `${to}` : "" });
    heading.current?.scrollIntoView();
  }
  return html`
    <h1 ref=${heading}>Services</h1>
    <form class="bar" role="search" onSubmit=${submit}>
      ${searchField(asked.search, "name, address, port, pod, node, type, is:broken …", (search) => change({ search }))}
      <span class="check"><label for="namespace">in</label>
        <select id="namespace" onChange=${(event: Event) => change({ namespace: (event.target as HTMLSelectElement).value })}>
          ${["", ...new Set([...(answer?.namespaces ?? []), ...(asked.namespace === "" ? [] : [asked.namespace])])].map(
            (name) =>
              html`<option value=${name} selected=${name === asked.namespace}>${name || "all namespaces"}</option>`,
          )}
        </select></span>
    </form>
    <p role="status" class="count">${failure || countText(answer)}</p>
    ${answer !== undefined && tableOf("Service ports that this node serves", NAMES, rows.map(cellsOf), "services", (name) => sortHead(name, asked.sort, (sort) => change({ sort })))}
    ${answer !== undefined && rows.length === 0 && html`<p class="empty">Nothing matches.</p>`}
    <p class="pages" hidden=${matching <= ROWS}>
      <button type="button" disabled=${offset === 0} onClick=${() => turn(offset - ROWS)}>Previous</button>${" "}
      <button type="button" disabled=${offset + rows.length >= matching} onClick=${() => turn(offset + ROWS)}>Next</button>
    </p>`;
}

/** Columns, and how the server sorts by them. Connections are counted on demand: each count asks the kernel for all of them. */
const SORTS: Readonly<Record<string, string>> = {
  ...{ "Service port": "name", Type: "type", Addresses: "addresses", "Pods ready": "pods", State: "state" },
};
const NAMES = [...Object.keys(SORTS), "Connections"];

/** A heading that sorts, and sorts the other way when used again. */
function sortHead(name: string, sort: string, onSort: (sort: string) => void) {
  const own = SORTS[name];
  if (own === undefined) return html`<th scope="col">${name}</th>`;
  const [isUp, isDown] = [(sort || "name") === own, sort === `-${own}`];
  return html`<th scope="col" aria-sort=${isUp ? "ascending" : isDown ? "descending" : "none"}>
    <button type="button" onClick=${() => onSort(isUp ? `-${own}` : own === "name" ? "" : own)}>${name}<span aria-hidden="true">${isUp ? " ↑" : isDown && " ↓"}</span></button></th>`;
}

function countText(answer: ServiceTable | undefined): string {
  if (answer === undefined) return "Loading …";
  const { total, matching, offset, rows } = answer;
  if (rows.length === 0 && offset > 0) return "Loading …";
  const range = matching > ROWS ? `, ${offset + 1} to ${offset + rows.length} shown` : "";
  return `${matching === total ? "" : `${matching} of `}${total} service port${total === 1 ? "" : "s"}${range}`;
}

function cellsOf({ key, service, portName, protocol, type, families, weights, trouble }: ServiceRow) {
  const name = portName === "" ? service : `${service}:${portName}`;
  const counts = families.map(({ ready, endpoints }) =>
    ready === null ? "– (no EndpointSlice)" : `${ready} of ${endpoints}`,
  );
  const isSame = new Set(counts).size === 1;
  return [
    html`<a href=${urlOf("service", { key })}>${name}</a> <small>${protocol}</small>`,
    type,
    html`<span class="addresses">${families.flatMap(addressesOf).map((text) => html`<code>${text}</code>`)}</span>`,
    html`${isSame ? counts[0] : families.map(({ family }, index) => `${family}: ${counts[index]}`).join(", ")}
      ${weights.length > 0 && html` <small>weights ${weights.join(", ")}</small>`}`,
    trouble === null ? badge("good", "answers") : badge("bad", trouble),
    html`<a href=${urlOf("connections", { search: name })} aria-label=${`count connections of ${name}`}>count</a>`,
  ];
}

/** Node ports are the same for both families. */
function addressesOf({ clusterIP, others, nodePort }: ServiceFamilyRow, index: number): string[] {
  const texts = [clusterIP, ...others.slice(0, 2), ...(others.length > 2 ? [`and ${others.length - 2} more`] : [])];
  return nodePort !== 0 && index === 0 ? [...texts, `node port ${nodePort}`] : texts;
}
