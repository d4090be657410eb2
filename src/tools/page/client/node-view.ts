/** The node: what `kube-proxy status` says, and the warnings and errors in its log. */

import { statusLines } from "../../../agent/daemon/status-words.ts";
import type { LoggedProblem } from "../../../logging/problem-memory.ts";
import type { StateAnswer } from "../answers.ts";
import { servicesOf } from "../named-words.ts";
import type { State } from "./state.ts";
import { badge, html, itemsOf, linked, Ticking, timeText, useChanges, type ViewProps } from "./ui.ts";

export function NodeView({ state }: ViewProps) {
  useChanges(state);
  const answer = state.known?.answer;
  return html`<h1>Node</h1>${answer === undefined ? html`<p>Loading …</p>` : parts(answer, state)}`;
}

/** The status with its ages now, as the daemon sends nothing while only they change. */
function aged({ families, process, ...status }: StateAnswer["status"], { ageMs, heardMs }: State) {
  return {
    ...{ ...status, ...(heardMs !== undefined && { silentMs: heardMs }) },
    process: { ...process, uptimeSeconds: process.uptimeSeconds + ageMs / 1000 },
    families: families.map((one) => ({
      ...one,
      lastSyncAgeMs: one.lastSyncAgeMs === null ? null : one.lastSyncAgeMs + ageMs,
    })),
  };
}

function parts({ status, zone, isNodeEligible, problems }: StateAnswer, state: State) {
  const balancers = isNodeEligible
    ? "load balancers may use this node"
    : "load balancers should not use this node: it is being removed, or not known";
  const leftOut = status.families.flatMap((one) => (one.leftOut ?? []).map(({ servicePort }) => servicePort));
  const names = servicesOf([...status.failures.map(({ subject }) => subject), ...leftOut]);
  const lines = () => [
    ...statusLines(aged(status, state)).map((line) => linked(line, names)),
    `zone: ${zone ?? "none"}`,
  ];
  return html`
    <ul class="decisions"><${Ticking} draw=${() => itemsOf([...lines(), balancers])} /></ul>
    <h2>Warnings and errors in the log</h2>
    ${
      problems.length === 0
        ? html`<p>None since it was started.</p>`
        : html`<p class="facts">As logged, also if solved by now: what is known to be over says so, and what is wrong now is above.</p>
          <ol class="problems">${problems.map(problemItem)}</ol>`
    }`;
}

function problemItem({ severity, message, details, service = "", count, lastMs, overMs }: LoggedProblem) {
  const times = count === 1 ? "" : `, ${count} times`;
  const over = badge("good", "over");
  return html`<li>
    <p>${badge(severity === "error" ? "bad" : "warn", severity)}${overMs !== undefined && [" ", over]} ${timeText(lastMs)}${times}${overMs !== undefined && [", over since ", timeText(overMs)]}</p>
    <p>${message}</p>
    ${details !== "" && html`<small>${linked(details, servicesOf([service]))}</small>`}
  </li>`;
}
