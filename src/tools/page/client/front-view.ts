/** The first view: is this node's service network well? A sentence, five numbers, what is wrong, and all Services at once. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { FrontAnswer } from "../answers.ts";
import { servicesOf } from "../named-words.ts";
import { histogram, timeline, totalOf, trackingPicture } from "./charts.ts";
import type { Known, State } from "./state.ts";
import {
  ageText,
  type Children,
  html,
  linked,
  msText,
  numbered,
  Ticking,
  timeText,
  urlOf,
  useChanges,
  useQuestion,
  type ViewProps,
  waiting,
} from "./ui.ts";

export function FrontView({ state }: ViewProps) {
  useChanges(state);
  const question = useQuestion<FrontAnswer>("api/front", {}, state);
  const { answer } = question;
  const { known } = state;
  const loading = waiting(question);
  if (answer === undefined || known === undefined)
    return html`<h1>Overview</h1>${loading ?? html`<p role="status">Loading …</p>`}`;
  const troubles = troublesOf(answer, known);
  return html`
    <h1 class=${`verdict ${gradeOf(answer, troubles)}`}>${verdictOf(answer, troubles)}</h1>
    ${loading}
    <p class="facts">${lookedAt(answer, known)}</p>
    <dl class="tiles">${tilesOf(answer, known, state)}</dl>
    ${troubles.length > 0 && html`<h2>What is wrong</h2><ul class="wrong">${troubles}</ul>`}
    ${
      answer.total > 0 &&
      html`<h2>All Services</h2><${Squares} squares=${answer.squares} />
        <p class="facts"><a href="#/services">The same as a table</a>${answer.total > answer.squares.length && `, of which the first ${answer.squares.length} are drawn`}</p>`
    }
    <h2>Syncs</h2>
    <div class="pair">${timeline(known.syncs)}${histogram(known.syncs)}</div>
    ${trackingPicture(trackedUntilNow(answer, known), known.answer.status.connectionTracking?.max ?? 0)}`;
}

/** The state is newer than the overview's answer while nothing else changes. */
export function trackedUntilNow(
  { tracked }: FrontAnswer,
  { answer: { status, nowMs } }: Known,
): FrontAnswer["tracked"] {
  const [lastMs = nowMs] = tracked.at(-1) ?? [];
  const { connectionTracking: now } = status;
  return now === undefined || tracked.length < 2 || nowMs <= lastMs ? tracked : [...tracked, [nowMs, now.entries]];
}

/** Each with its reason and a link, gravest first. */
function troublesOf({ wrong, wrongPorts }: FrontAnswer, { answer: { status } }: Known): Children[] {
  const { isHealthy, failures, limits, connectionTracking } = status;
  const item = (isBad: boolean, href: string, name: string, why: Children) =>
    html`<li class=${isBad ? "bad" : "warn"}><a href=${href}>${name}</a> <span>${why}</span></li>`;
  const named = new Set(wrong.map(({ name }) => name));
  return [
    !isHealthy && item(true, "#/node", "The daemon", "It does not keep up: changes are not in the kernel in time."),
    ...failures
      .filter(({ subject }) => !named.has(subject))
      .map(({ subject, reason }) =>
        item(
          true,
          servicesOf([subject]).size > 0 ? urlOf("services", { search: subject }) : "#/syncs",
          subject,
          `Refused: ${reason}`,
        ),
      ),
    ...wrong.map(({ key, name, isSilent, why, names }) =>
      item(isSilent, urlOf("service", { key }), name, linked(why, new Map(names), status.node)),
    ),
    wrongPorts > wrong.length &&
      item(false, urlOf("services", { search: "is:broken" }), `${wrongPorts - wrong.length} more`, "in the table"),
    ...(connectionTracking?.notes ?? []).map((note) =>
      item(note.includes("% full"), "#/node", "Connection tracking", note),
    ),
    ...limits.map(({ what, why }) => item(false, "#/node", `Not possible: ${what}`, why)),
  ].filter((one) => one !== false);
}

const gradeOf = ({ silent }: FrontAnswer, troubles: readonly unknown[]): string =>
  silent > 0 ? "bad" : troubles.length > 0 ? "warn" : "good";

function verdictOf({ total, silent, partly }: FrontAnswer, troubles: readonly unknown[]): string {
  if (silent > 0 && total === 1) return "The only Service gets no answer";
  if (silent > 0)
    return `${silent.toLocaleString("en")} of ${numbered(total, "Service")} ${silent === 1 ? "gets" : "get"} no answer`;
  if (total === 0) return "This node serves no Services yet";
  const all = total === 1 ? "The only Service is" : `All ${numbered(total, "Service")} are`;
  if (partly > 0) return `${all} answered, ${partly} for some clients only`;
  return troubles.length > 0 ? `${all} answered, but something is wrong` : `${all} answered`;
}

function lookedAt({ total }: FrontAnswer, { answer: { status, lately } }: Known): string {
  const ports = Math.max(0, ...status.families.map(({ servicePorts }) => servicePorts));
  return `Looked at: the endpoints of ${numbered(total, "Service")} (${numbered(ports, "port")}), what the kernel has refused, connection tracking, the API server, and all syncs since ${timeText(lately.sinceMs)}. Endpoints count as they are reported; nothing is sent to them.`;
}

/** A number, what it counts, and a note. */
const tile = (name: string, number: Children, note: Children, kind = "") =>
  html`<div class=${kind}><dt>${name}</dt><dd><strong>${number}</strong><span>${note}</span></dd></div>`;

/** A number that is not known is a dash with its reason. */
function tilesOf({ total, silent, partly }: FrontAnswer, { answer, syncs }: Known, state: State) {
  const { heardMs } = state;
  const { status, lately, nowMs } = answer;
  const { connectionTracking: tracking, families } = status;
  const [last] = syncs;
  const isWholeDay = nowMs - lately.sinceMs >= 86_399_000;
  const ofAll = `of ${total.toLocaleString("en")}${partly > 0 ? `; ${partly} more for some clients` : ""}`;
  const lately24 = isWholeDay ? "in 24 h" : `since ${timeText(lately.sinceMs)}, when it started`;
  return [
    tile(
      "Services without an answer",
      silent.toLocaleString("en"),
      ofAll,
      silent > 0 ? "bad" : partly > 0 ? "warn" : "good",
    ),
    last === undefined
      ? tile("Last change", "–", families.some(({ isSyncing }) => isSyncing) ? "the first sync runs" : "no sync yet")
      : tile(
          "Last change",
          html`<${Ticking} draw=${() => ageText(nowMs - last.endedMs + state.ageMs)} />`,
          html`ago, took <a href=${urlOf("syncs", { sync: `${last.number}` })}>${msText(totalOf(last))} ms</a>`,
        ),
    trackingTile(tracking),
    tile(
      "Repairs and refusals",
      `${lately.repairs} · ${lately.refusals}`,
      lately24,
      lately.refusals > 0 ? "bad" : lately.repairs > 0 ? "warn" : "good",
    ),
    heardMs === undefined
      ? tile("API server", "–", "none is asked: objects come from files")
      : tile("API server heard", ageText(heardMs), "ago at this answer, about the quietest resource"),
  ];
}

function trackingTile(tracking: Known["answer"]["status"]["connectionTracking"]) {
  const name = "Connection tracking";
  if (tracking === undefined) return tile(name, "–", "the kernel does not say");
  const { entries, max } = tracking;
  if (max === 0) return tile(name, "–", `${entries} entries; the limit is not known`);
  const fill = entries / max;
  const note = html`<meter min="0" max="1" high="0.9" value=${fill} aria-hidden="true" /> ${entries.toLocaleString("en")} of ${max.toLocaleString("en")}`;
  return tile(name, `${Math.floor(fill * 100)} %`, note, fill >= 0.9 ? "bad" : "good");
}

/** One square a Service, drawn as a few paths however many there are; the arrow keys move from one to the next. */
function Squares({ squares }: { readonly squares: FrontAnswer["squares"] }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(-1);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    if (frame.current !== null) watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const size = Math.max(6, Math.min(26, Math.floor(Math.sqrt((Math.max(width, 300) * 460) / squares.length))));
  const columns = Math.max(1, Math.floor(width / size));
  const rows = Math.ceil(squares.length / columns);
  const gap = size > 12 ? 4 : size > 8 ? 2 : 1;
  const place = (index: number) => `M${(index % columns) * size} ${Math.floor(index / columns) * size}`;
  const box = `h${size - gap}v${size - gap}h-${size - gap}z`;
  const pathOf = (grade: number) =>
    squares.map(([, , own], index) => (own === grade ? place(index) + box : "")).join("");
  const [name, key, grade] = squares[at] ?? [];
  const open = () => {
    if (key !== undefined) location.hash = urlOf("service", { key });
  };
  const onPointer = ({ offsetX, offsetY }: PointerEvent) => {
    const index = Math.floor(offsetY / size) * columns + Math.floor(offsetX / size);
    setAt(offsetX < columns * size && index < squares.length ? index : -1);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (event.key === "Enter") open();
    if (step === undefined) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(squares.length - 1, at + step)));
  };
  const words = ["answered", "answered for some clients only", "no answer"][grade ?? 0];
  return html`<div class="squares" ref=${frame}>
    <div role="application" tabindex="0" aria-label="All Services, those without an answer first: arrow keys move, Enter opens" aria-describedby="square"
      onKeyDown=${onKeyDown} onFocus=${() => setAt(Math.max(0, at))} onClick=${open} onPointerMove=${onPointer}>
      <svg width=${columns * size} height=${rows * size} aria-hidden="true">
        ${[0, 1, 2].map((one) => html`<path class=${`grade${one}`} d=${pathOf(one)} />`)}
        ${at >= 0 && html`<path class="here" d=${place(at) + box} />`}
      </svg>
    </div>
    <p id="square" role="status" class="facts">${name === undefined ? "Point at a square for its name." : `${name}: ${words}`}</p>
  </div>`;
}
