/** The node: the state of its families, what it cannot do and why, and the warnings and errors in its log. */
import type { LoggedProblem } from "../../logging/problem-memory.ts";
import type { StateAnswer } from "../answers.ts";
import { badge, html, itemsOf, scrolling, tableOf, timeText, useChanges, type ViewProps } from "./ui.ts";

export function NodeView({ state }: ViewProps) {
  useChanges(state);
  const answer = state.known?.answer;
  return html`<h1>Node</h1>${answer === undefined ? html`<p>Loading …</p>` : parts(answer)}`;
}

function parts({ status, zone, isNodeEligible, problems, lastSync }: StateAnswer) {
  const facts: Readonly<Record<string, string>> = {
    Program: status.program,
    Node: status.node,
    Zone: zone ?? "none",
    Mode: status.mode,
    "Load balancers": isNodeEligible
      ? "may use this node"
      : "should not use this node: it is being removed, or not known",
    Syncs: `${lastSync}`,
  };
  const cannot = [...status.limits.map(({ what, why }) => ({ subject: what, reason: why })), ...status.failures];
  return html`
    <dl class="node">${Object.entries(facts).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <h2>Families</h2>
    ${scrolling("Families", tableOf("Families", ["Family", "Service ports", "Endpoints", "State"], status.families.map(familyCells)))}
    <h2>Problems</h2>
    ${
      cannot.length === 0
        ? html`<p>None are known, and the kernel refuses nothing.</p>`
        : html`<ul>${itemsOf(cannot.map(({ subject, reason }) => html`<b>${subject}</b>: ${reason}`))}</ul>`
    }
    <h2>Warnings and errors in the log</h2>
    ${
      problems.length === 0
        ? html`<p>None since it was started.</p>`
        : html`<p class="facts">As logged, including problems that are solved by now; current problems are above.</p>
          <ol class="problems">${problems.map(problemItem)}</ol>`
    }`;
}

function familyCells({
  family,
  servicePorts,
  endpoints,
  isInitialised,
  isFailing,
}: StateAnswer["status"]["families"][number]) {
  const well = isFailing ? badge("bad", "the last sync failed") : badge("good", "in the kernel");
  return [family, servicePorts, endpoints, isInitialised ? well : badge("warn", "waiting for services")];
}

function problemItem({ severity, message, details, count, lastMs }: LoggedProblem) {
  const times = count === 1 ? "" : `, ${count} times`;
  return html`<li>
    <p>${badge(severity === "error" ? "bad" : "warn", severity)} ${timeText(lastMs)}${times}</p>
    <p>${message}</p>
    ${details !== "" && html`<small>${details}</small>`}
  </li>`;
}
