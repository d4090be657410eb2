/** A packet's path through the planned rules, step by step. */
import type { TraceAnswer, TraceStep, TraceSteps } from "../answers.ts";
import { ask, failureText } from "./ask.ts";
import { el, itemsOf, labelled, plain } from "./dom.ts";
import type { View } from "./state.ts";

export const traceView: View = (main, query) => {
  const field = (id: string, attributes: Record<string, string | number | boolean>) =>
    el("input", { id, name: id, required: true, autocomplete: "off", spellcheck: "false", ...attributes });
  const from = field("from", { value: query.get("from") ?? "pod", list: "clients", size: 24 });
  const to = field("to", { value: query.get("to") ?? "", size: 24, placeholder: "10.96.0.10" });
  const port = field("port", { value: query.get("port") ?? "", size: 6, inputmode: "numeric" });
  const protocol = el("select", { id: "protocol", name: "protocol" });
  for (const name of ["tcp", "udp", "sctp"])
    protocol.append(el("option", { selected: query.get("protocol") === name }, name));
  const verbose = el("input", { type: "checkbox", id: "verbose", name: "verbose", checked: query.has("verbose") });
  const result = el("div", { "aria-live": "polite" });
  main.append(
    el("h1", {}, "A packet's path"),
    el("p", { class: "facts" }, "Through the rules that this node has planned. Nothing is sent."),
    el("form", { class: "bar", submit }, [
      el("p", {}, labelled("From", from)),
      el(
        "datalist",
        { id: "clients" },
        ["pod", "node", "outside"].map((value) => el("option", { value })),
      ),
      el("p", {}, labelled("To address", to)),
      el("p", {}, labelled("Port", port)),
      el("p", {}, labelled("Protocol", protocol)),
      el("p", { class: "check" }, labelled("also rules that do not match", verbose).toReversed()),
      el("p", {}, el("button", { type: "submit", class: "main" }, "Follow it")),
    ]),
    el("p", { class: "facts" }, "From: an address, or pod, node, outside."),
    result,
  );

  /** The URL of the view holds the question. */
  function submit(event: Event): void {
    event.preventDefault();
    const question = new URLSearchParams({
      ...{ from: from.value, to: to.value, port: port.value, protocol: protocol.value },
      ...(verbose.checked && { verbose: "1" }),
    });
    if (location.hash === `#/trace?${question}`) void load();
    else location.hash = `#/trace?${question}`;
  }

  async function load(): Promise<void> {
    result.replaceChildren(el("p", {}, "Following …"));
    const initial = { from: "pod", to: "", port: "", protocol: "tcp" };
    try {
      const answer = await ask<TraceAnswer>("api/trace", { ...initial, ...Object.fromEntries(query) });
      result.replaceChildren(...answerParts(answer));
    } catch (error) {
      result.replaceChildren(el("p", { role: "alert", class: "error" }, failureText(error)));
    }
  }
  if (query.has("to")) void load();
  return () => {};
};

function answerParts({ packet, rules, notes, outcomes, steps }: TraceAnswer): HTMLElement[] {
  return [
    el("h2", {}, "What becomes of it"),
    el("p", { class: "facts" }, plain(`${packet}; ${rules}`)),
    el("ul", { class: "outcomes" }, outcomes.map(outcomeItem)),
    el("h2", {}, "Step by step"),
    stepList(steps),
    el("ul", { class: "facts" }, itemsOf(notes)),
  ];
}

function outcomeItem({ odds, text, assumptions }: TraceAnswer["outcomes"][number]): HTMLElement {
  const condition = assumptions.length > 0 ? `, if ${assumptions.join(", and ")}` : "";
  return el("li", {}, [el("b", {}, odds), plain(` ${text}${condition}`)]);
}

function stepList({ steps, fate, isGood, question, branches }: TraceSteps): HTMLElement {
  return el("ol", { class: "steps" }, [
    ...steps.map(stepItem),
    fate !== null && el("li", { class: `fate ${isGood ? "good" : "bad"}` }, plain(fate)),
    question !== null &&
      el("li", {}, [el("span", { class: "question" }, plain(question)), ...branches.map(branchPart)]),
  ]);
}

function branchPart({ odds, label, way }: TraceSteps["branches"][number], index: number): HTMLElement {
  const summary = el("summary", {}, [odds !== null && el("b", {}, `${odds} `), plain(label)]);
  return el("details", { open: index === 0 }, [summary, stepList(way)]);
}

function stepItem({ kind, text, said }: TraceStep): HTMLElement {
  const isRule = kind === "match" || kind === "no-match";
  return el("li", { class: kind }, [
    isRule ? el("code", {}, plain(text)) : plain(text),
    said !== null && el("small", {}, plain(kind === "match" ? `→ ${said}` : said)),
  ]);
}
