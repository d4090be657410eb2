/** A packet's path through the planned rules, step by step. */
import { useRef } from "preact/hooks";
import { CLIENT_KINDS } from "../../../contract/inspect/client-place.ts";
import type { TraceAnswer, TraceStep, TraceSteps } from "../answers.ts";
import { type Arrow, type Box, type Picture, pictureOf } from "./picture.ts";
import { html, itemsOf, linked, scrolling, urlOf, useQuestion, type ViewProps, waiting } from "./ui.ts";

export function TraceView({ query, state }: ViewProps) {
  const form = useRef<HTMLFormElement>(null);
  const asked = { from: "pod", to: "", port: "", protocol: "tcp", ...Object.fromEntries(query) };
  const question = useQuestion<TraceAnswer>("api/trace", asked.to === "" ? undefined : asked);
  /** The URL of the view holds the question. */
  function submit(event: Event): void {
    event.preventDefault();
    const fields = form.current === null ? [] : [...new FormData(form.current)];
    const said = Object.fromEntries(fields.map(([name, value]) => [name, String(value)]));
    if (location.hash === urlOf("trace", said)) question.ask(said);
    else location.hash = urlOf("trace", said);
  }
  const field = (name: "from" | "to" | "port", attributes: Record<string, string | number | boolean>) =>
    html`<input id=${name} name=${name} required autocomplete="off" spellcheck="false" value=${asked[name]} ...${attributes} />`;
  const { answer } = question;
  return html`
    <h1>A packet's path</h1>
    <p class="facts">Through the rules that this node has planned. Nothing is sent.</p>
    <form class="bar" ref=${form} onSubmit=${submit}>
      <p><label for="from">From</label>${field("from", { list: "clients", size: 24 })}</p>
      <datalist id="clients">${CLIENT_KINDS.map((value) => html`<option value=${value} />`)}</datalist>
      <p><label for="to">To</label>${field("to", { size: 24, placeholder: "shop/web, a URL, 10.96.0.10" })}</p>
      <p><label for="port">Port</label>${field("port", { size: 6, required: false })}</p>
      <p><label for="protocol">Protocol</label><select id="protocol" name="protocol">${["tcp", "udp", "sctp"].map(
        (name) => html`<option selected=${asked.protocol === name}>${name}</option>`,
      )}</select></p>
      <p class="check"><input type="checkbox" id="verbose" name="verbose" value="1" checked=${query.has("verbose")} />
        <label for="verbose">also rules that do not match</label></p>
      <p><button type="submit" class="main">Follow it</button></p>
    </form>
    <p class="facts">From: an address, the name of a pod, or pod, node, outside. To: a Service, its DNS name, a URL, a pod, this node or an address; the port may be part of it, by number or name.</p>
    <div aria-live="polite">${asked.to !== "" && (waiting(question) ?? (answer !== undefined && answerParts(answer, asked.from, state.known?.answer.status.node)))}</div>`;
}

function answerParts(answer: TraceAnswer, from: string, here: string | undefined) {
  const { packet, rules, notes, outcomes, steps } = answer;
  const names = new Map(answer.names);
  return html`
    <h2>What becomes of it</h2>
    <p class="facts">${linked(`${packet}; ${rules}`, names, here)}</p>
    <ul class="outcomes">${outcomes.map(outcomeItem)}</ul>
    ${scrolling("Picture of the way", pictureOf(wayOf(answer, from)))}
    <h2>Step by step</h2>
    ${stepList(steps)}
    <ul class="facts">${itemsOf(notes.map((note) => linked(note, names, here)))}</ul>`;
}

/** The way as a picture: the client, the destination and whose it is, each end and the rule that decides it. */
export function wayOf({ source, destination, owner, outcomes, steps, packet }: TraceAnswer, from: string): Picture {
  const client: Box = { title: source, note: from === source ? "" : from, column: 0, isUsed: true };
  const target: Box = { title: destination, note: owner, column: 1, isUsed: true };
  const ends = endsIn(steps);
  const arrows = outcomes.map(({ text, odds, assumptions }): Arrow => {
    const { rule = "", isGood = false } = ends.find(({ fate }) => fate === text) ?? {};
    const note = [...assumptions.map((one) => `if ${one}`), rule].filter((part) => part !== "").join(": ");
    const [title = ""] = text.split(/, | by /, 1);
    return { from: target, to: { title, note, column: 2, isUsed: isGood }, label: odds };
  });
  const boxes = [client, target, ...arrows.map(({ to }) => to)];
  return { title: packet, boxes, arrows: [{ from: client, to: target, label: "" }, ...arrows] };
}

type End = Pick<TraceSteps, "fate" | "isGood"> & { readonly rule: string };

/** Where the steps end, and the last rule that decided it: its chain and number. */
function endsIn({ steps, fate, isGood, branches }: TraceSteps, before = ""): readonly End[] {
  const decided = steps.findLast(
    ({ kind, said }) => kind === "match" && /^(?:dnat|redirect|drop|reject)/i.test(said ?? ""),
  );
  const rule = decided?.text.replace(/: .*$/s, "") ?? before;
  return fate === null ? branches.flatMap(({ way }) => endsIn(way, rule)) : [{ fate, isGood, rule }];
}

function outcomeItem({ odds, text, assumptions }: TraceAnswer["outcomes"][number]) {
  const condition = assumptions.length > 0 ? `, if ${assumptions.join(", and ")}` : "";
  return html`<li><b>${odds}</b> ${text}${condition}</li>`;
}

const stepList = ({
  steps,
  fate,
  isGood,
  question,
  branches,
}: TraceSteps): ReturnType<typeof html> => html`<ol class="steps">
  ${steps.map(stepItem)}
  ${fate !== null && html`<li class=${`fate ${isGood ? "good" : "bad"}`}>${fate}</li>`}
  ${question !== null && html`<li><span class="question">${question}</span>${branches.map(branchPart)}</li>`}
</ol>`;

const branchPart = (
  { odds, label, way }: TraceSteps["branches"][number],
  index: number,
) => html`<details open=${index === 0}>
  <summary>${odds !== null && html`<b>${odds}</b> `}${label}</summary>
  ${stepList(way)}
</details>`;

const stepItem = ({ kind, text, said }: TraceStep) => html`<li class=${kind}>
  ${kind === "match" || kind === "no-match" ? html`<code>${text}</code>` : text}
  ${said !== null && html`<small>${kind === "match" ? `→ ${said}` : said}</small>`}
</li>`;
