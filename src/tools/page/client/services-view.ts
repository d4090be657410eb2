/** The service table, one page from the server at a time. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { ServiceFamilyRow, ServiceRow, ServiceTable } from "../answers.ts";
import { badge, html, searchField, tableOf, urlOf, useQuestion, type ViewProps } from "./ui.ts";

const ROWS = 100;

export function ServicesView({ query, state }: ViewProps) {
  const [asked, setAsked] = useState({
    search: query.get("search") ?? "",
    namespace: query.get("namespace") ?? "",
    offset: Number(query.get("offset")) > 0 ? `${Number(query.get("offset"))}` : "",
  });
  const opens = useRef(false);
  const change = (changes: Partial<typeof asked>): void => {
    opens.current = false;
    setAsked((last) => ({ ...last, offset: "", ...changes }));
  };
  const heading = useRef<HTMLHeadingElement>(null);
  const question = useQuestion<ServiceTable>("api/services", { ...asked, limit: `${ROWS}` }, state);
  // The back button and shared links return to what is shown now.
  useEffect(() => history.replaceState(null, "", urlOf("services", asked)), [asked]);
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
    ${answer !== undefined && tableOf("Service ports that this node serves", NAMES, rows.map(cellsOf), "services")}
    ${answer !== undefined && rows.length === 0 && html`<p class="empty">Nothing matches.</p>`}
    <p class="pages" hidden=${matching <= ROWS}>
      <button type="button" disabled=${offset === 0} onClick=${() => turn(offset - ROWS)}>Previous</button>${" "}
      <button type="button" disabled=${offset + rows.length >= matching} onClick=${() => turn(offset + ROWS)}>Next</button>
    </p>`;
}

const NAMES = ["Service port", "Addresses", "Endpoints", "State"];

function countText(answer: ServiceTable | undefined): string {
  if (answer === undefined) return "Loading …";
  const { total, matching, offset, rows } = answer;
  if (rows.length === 0 && offset > 0) return "Loading …";
  const range = matching > ROWS ? `, ${offset + 1} to ${offset + rows.length} shown` : "";
  return `${matching === total ? "" : `${matching} of `}${total} service port${total === 1 ? "" : "s"}${range}`;
}

function cellsOf({ key, service, portName, protocol, families, trouble }: ServiceRow) {
  const counts = families.map(({ used, endpoints }) => (used === endpoints ? `${used}` : `${used} of ${endpoints}`));
  const isSame = new Set(counts).size === 1;
  return [
    html`<a href=${urlOf("service", { key })}>${portName === "" ? service : `${service}:${portName}`}</a> <small>${protocol}</small>`,
    html`<span class="addresses">${families.flatMap(addressesOf).map((text) => html`<code>${text}</code>`)}</span>`,
    isSame ? counts[0] : families.map(({ family }, index) => `${family}: ${counts[index]}`).join(", "),
    trouble === null ? badge("good", "answers") : badge("bad", trouble),
  ];
}

/** Node ports are the same for both families. */
function addressesOf({ clusterIP, others, nodePort }: ServiceFamilyRow, index: number): string[] {
  const texts = [clusterIP, ...others.slice(0, 2), ...(others.length > 2 ? [`and ${others.length - 2} more`] : [])];
  return nodePort !== 0 && index === 0 ? [...texts, `node port ${nodePort}`] : texts;
}
