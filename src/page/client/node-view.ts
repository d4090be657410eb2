/** The node: the state of its families, what it cannot do and why, and the warnings and errors in its log. */
import type { LoggedProblem } from "../../logging/problem-memory.ts";
import type { StateAnswer } from "../answers.ts";
import { badge, el, plain, scrolling, tableParts, timeText } from "./dom.ts";
import type { View } from "./state.ts";

export const nodeView: View = (main, _query, state) => {
  const body = el("div", {}, el("p", {}, "Loading …"));
  main.append(el("h1", {}, "Node"), body);
  let shown = "";
  function show(): void {
    const { known } = state;
    if (known === undefined) return;
    const { syncs: _syncs, ...answer } = known.answer;
    // A new age alone is no reason to redraw, which would lose the reader's place.
    const text = JSON.stringify(answer, (name, value: unknown) => (name === "lastSyncAgeMs" ? undefined : value));
    if (text === shown) return;
    shown = text;
    body.replaceChildren(...parts(known.answer));
  }
  show();
  return state.onChange(show);
};

function parts({ status, zone, isNodeEligible, problems, lastSync }: StateAnswer): HTMLElement[] {
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
  const names = ["Family", "Service ports", "Endpoints", "State"];
  const families = el("tbody", {}, status.families.map(familyRow));
  return [
    el(
      "dl",
      { class: "node" },
      Object.entries(facts).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, plain(value))]),
    ),
    scrolling("Families", el("table", {}, tableParts(names, families, el("caption", {}, "Families")))),
    el("h2", {}, "Problems"),
    cannot.length === 0
      ? el("p", {}, "None are known, and the kernel refuses nothing.")
      : el(
          "ul",
          {},
          cannot.map(({ subject, reason }) => el("li", {}, [el("b", {}, plain(subject)), plain(`: ${reason}`)])),
        ),
    el("h2", {}, "Warnings and errors in the log"),
    ...(problems.length === 0
      ? [el("p", {}, "None since it was started.")]
      : [
          el(
            "p",
            { class: "facts" },
            "As logged, including problems that are solved by now; current problems are above.",
          ),
          el("ol", { class: "problems" }, problems.map(problemItem)),
        ]),
  ];
}

type FamilyStatus = StateAnswer["status"]["families"][number];

function familyRow({ family, servicePorts, endpoints, isInitialised, isFailing }: FamilyStatus): HTMLElement {
  const well = isFailing ? badge("bad", "the last sync failed") : badge("good", "in the kernel");
  return el("tr", {}, [
    el("th", { scope: "row" }, plain(family)),
    el("td", { class: "number" }, `${servicePorts}`),
    el("td", { class: "number" }, `${endpoints}`),
    el("td", {}, isInitialised ? well : badge("warn", "waiting for services")),
  ]);
}

function problemItem({ severity, message, details, count, lastMs }: LoggedProblem): HTMLElement {
  const times = count === 1 ? "" : `, ${count} times`;
  return el("li", {}, [
    el("p", {}, [badge(severity === "error" ? "bad" : "warn", severity), ` ${timeText(lastMs)}${times}`]),
    el("p", {}, plain(message)),
    details !== "" && el("small", {}, plain(details)),
  ]);
}
