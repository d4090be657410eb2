/** The timeline of syncs, newest first: why each ran, what it wrote, how long its parts took. */
import { useState } from "preact/hooks";
import type { CauseWords } from "../../../agent/daemon/sync-words.ts";
import type { ToldSync } from "../answers.ts";
import { servicesOf } from "../named-words.ts";
import { histogram, outcomeOf, timeline, totalOf } from "./charts.ts";
import { badge, html, itemsOf, linked, msText, timeText, urlOf, useChanges, type ViewProps } from "./ui.ts";

const SHOWN = 100;

export function SyncsView({ query, state }: ViewProps) {
  useChanges(state);
  const chosen = Number(query.get("sync"));
  const search = query.get("search") ?? "";
  const isAbout = ({ words, failures }: ToldSync) =>
    search === "" ||
    words.causes.some(({ service, object }) => [service, object].includes(search)) ||
    failures.some(({ subject }) => subject.includes(search));
  const [only, setOnly] = useState("all");
  const [paused, setPaused] = useState<typeof state.known>();
  const known = paused ?? state.known;
  if (known === undefined) return html`<h1>Syncs</h1><p>Loading …</p>`;
  const fitting = known.syncs.filter((sync) => (only === "all" || outcomeOf(sync) !== "done") && isAbout(sync));
  // A sync that was asked for is among those shown.
  const from = Math.max(0, fitting.findIndex(({ number }) => number === chosen) - SHOWN / 2);
  const wanted = fitting.slice(from, from + SHOWN);
  return html`
    <h1>Syncs</h1>
    <div class="pair">${timeline(known.syncs)}${histogram(known.syncs)}</div>
    <div class="bar">
      <label for="kind">Show</label>
      <select id="kind" onChange=${(event: Event) => setOnly((event.target as HTMLSelectElement).value)}>
        <option value="all">all syncs</option><option value="trouble">repairs and refusals</option>
      </select>
      <span class="check"><input type="checkbox" id="pause" onChange=${() => setPaused(paused === undefined ? known : undefined)} />
        <label for="pause">pause</label></span>
    </div>
    <p class="count">${wanted.length === 0 ? "None yet." : `The last ${wanted.length} of ${known.answer.lastSync}`}${search !== "" && html`, with ${search} among the first causes. <a href="#/syncs">Show all</a>`}</p>
    <ol class="syncs">${wanted.map((sync) => syncItem(sync, `${known.answer.startedMs} ${sync.number}`, sync.number === chosen))}</ol>`;
}

/** @param key a restarted daemon counts from 1. */
function syncItem(sync: ToldSync, key: string, isChosen: boolean) {
  const { family, endedMs, furtherCauses, failures, furtherFailures, words } = sync;
  const outcome = outcomeOf(sync);
  const [kind, grade] = outcome === "repaired" ? (["repair", "warn"] as const) : (["trouble", "bad"] as const);
  const names = servicesOf(failures.map(({ subject }) => subject));
  const refusals = failures.map(({ subject, reason }) => linked(`${subject}: ${reason}`, names));
  return html`<li key=${key} class=${`${outcome === "done" ? "" : kind}${isChosen ? " chosen" : ""}`} ref=${isChosen ? intoView : undefined}>
    <p class="when"><time datetime=${new Date(endedMs).toISOString()}>${timeText(endedMs)}</time> ${family} ${" "}
      ${outcome !== "done" && badge(grade, outcome)}</p>
    <div>
      <ul class="causes">${itemsOf([...words.causes.map(causeParts), ...further(furtherCauses)])}</ul>
      <p class="wrote">${`${sync.isFullSync ? "Full sync: " : ""}${words.written}`}</p>
      ${refusals.length > 0 && html`<ul class="failures">${itemsOf([...refusals, ...further(furtherFailures)])}</ul>`}
    </div>
    ${stagesPart(sync)}
  </li>`;
}

const shown = new WeakSet<Element>();

/** Once: the reader may look elsewhere then. */
function intoView(item: Element | null): void {
  if (item === null || shown.has(item)) return;
  shown.add(item);
  item.scrollIntoView({ block: "center" });
}

const further = (count: number): string[] => (count > 0 ? [`and ${count} more`] : []);

function causeParts({ before, object, service, after }: CauseWords) {
  if (object === "") return before;
  return html`${before}<a href=${urlOf("services", { search: service || object })}>${object}</a>${linked(after, servicesOf([service]))}`;
}

function stagesPart(sync: ToldSync) {
  const { waiting, model, rules, kernel, after } = sync.stages;
  const parts = { waited: waiting, model, rules: rules - (kernel ?? 0), kernel: kernel ?? 0, after };
  const told = Object.entries(parts).filter(([, value]) => value >= 0.005);
  const text = told.map(([name, value]) => `${name} ${msText(value)}`).join(", ");
  return html`<p class="stages"><span><b>${msText(totalOf(sync))} ms</b> ${text}</span></p>`;
}
