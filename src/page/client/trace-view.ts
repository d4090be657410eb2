/** A packet's way through the planned rules, step by step. */
import type { TraceAnswer, TraceStep, TraceSteps } from "../answers.ts";
import { ask } from "./ask.ts";
import { el, plain } from "./dom.ts";
import type { View } from "./state.ts";

export const traceView: View = (main, query) => {
  const field = (id: string, label: string, attributes: Record<string, string | number | boolean>) => {
    const input = el("input", {
      id,
      name: id,
      required: true,
      autocomplete: "off",
      spellcheck: "false",
      ...attributes,
    });
    return { input, part: el("p", {}, el("label", { for: id }, label), input) };
  };
  const from = field("from", "From", { value: query.get("from") ?? "pod", list: "clients", size: 24 });
  const to = field("to", "To address", { value: query.get("to") ?? "", size: 24, placeholder: "10.96.0.10" });
  const port = field("port", "Port", { value: query.get("port") ?? "", size: 6, inputmode: "numeric" });
  const protocol = el("select", { id: "protocol", name: "protocol" });
  for (const name of ["tcp", "udp", "sctp"])
    protocol.append(el("option", { selected: query.get("protocol") === name }, name));
  const verbose = el("input", { type: "checkbox", id: "verbose", name: "verbose", checked: query.has("verbose") });
  const result = el("div", { "aria-live": "polite" });
  main.append(
    el("h1", {}, "A packet's way"),
    el("p", { class: "facts" }, "Through the rules that this node has planned. Nothing is sent."),
    el(
      "form",
      {
        class: "bar",
        submit: (event) => {
          event.preventDefault();
          const question = new URLSearchParams({
            from: from.input.value,
            to: to.input.value,
            port: port.input.value,
            protocol: protocol.value,
          });
          if (verbose.checked) question.set("verbose", "1");
          if (location.hash === `#/trace?${question}`) void load();
          else location.hash = `#/trace?${question}`;
        },
      },
      from.part,
      el("datalist", { id: "clients" }, ...["pod", "node", "outside"].map((value) => el("option", { value }))),
      to.part,
      port.part,
      el("p", {}, el("label", { for: "protocol" }, "Protocol"), protocol),
      el("p", { class: "check" }, verbose, el("label", { for: "verbose" }, "also rules that do not match")),
      el("p", {}, el("button", { type: "submit", class: "main" }, "Follow it")),
    ),
    el("p", { class: "facts" }, "From: an address, or pod, node, outside."),
    result,
  );

  async function load(): Promise<void> {
    result.replaceChildren(el("p", {}, "Following …"));
    const text = (name: string, fallback = "") => query.get(name) ?? fallback;
    const question = {
      from: text("from", "pod"),
      to: text("to"),
      port: text("port"),
      protocol: text("protocol", "tcp"),
    };
    try {
      const answer = await ask<TraceAnswer>(
        "api/trace",
        query.has("verbose") ? { ...question, verbose: "1" } : question,
      );
      result.replaceChildren(...answerParts(answer));
    } catch (error) {
      result.replaceChildren(
        el("p", { role: "alert", class: "error" }, error instanceof Error ? plain(error.message) : "No answer"),
      );
    }
  }
  if (query.has("to")) void load();
  return () => {};
};

function answerParts({ packet, rules, notes, outcomes, steps }: TraceAnswer): HTMLElement[] {
  return [
    el("h2", {}, "What becomes of it"),
    el("p", { class: "facts" }, plain(`${packet}; ${rules}`)),
    el(
      "ul",
      { class: "outcomes" },
      ...outcomes.map(({ odds, text, assumptions }) =>
        el(
          "li",
          {},
          el("b", {}, odds),
          plain(` ${text}${assumptions.length > 0 ? `, if ${assumptions.join(", and ")}` : ""}`),
        ),
      ),
    ),
    el("h2", {}, "Step by step"),
    stepList(steps),
    el("ul", { class: "facts" }, ...notes.map((note) => el("li", {}, plain(note)))),
  ];
}

function stepList({ steps, fate, isGood, question, branches }: TraceSteps): HTMLElement {
  return el(
    "ol",
    { class: "steps" },
    ...steps.map(stepItem),
    fate !== null && el("li", { class: `fate ${isGood ? "good" : "bad"}` }, plain(fate)),
    question !== null &&
      el(
        "li",
        { class: "fork" },
        el("span", { class: "question" }, plain(question)),
        ...branches.map(({ odds, label, way }, index) =>
          el(
            "details",
            { open: index === 0 },
            el("summary", {}, odds !== null && el("b", {}, `${odds} `), plain(label)),
            stepList(way),
          ),
        ),
      ),
  );
}

function stepItem({ kind, text, said }: TraceStep): HTMLElement {
  const isRule = kind === "match" || kind === "no-match";
  return el(
    "li",
    { class: kind },
    isRule ? el("code", {}, plain(text)) : plain(text),
    said !== null && el("small", {}, plain(kind === "match" ? `→ ${said}` : said)),
  );
}
