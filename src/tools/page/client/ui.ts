/** What all views are made of: templates whose texts cannot hurt, and the small parts that several views show. */
import htm from "htm";
import { type ComponentChildren, h, type VNode } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
import { durationText } from "../../../agent/daemon/status-words.ts";
import { type NameKind, type Names, wordsIn } from "../named-words.ts";
import { Question } from "./question.ts";
import type { State } from "./state.ts";

export type Children = ComponentChildren;

/** A template, ``html`<p class=${name}>${text}</p>` ``. Markup in texts is shown and never takes effect. */
export const html = htm.bind<VNode>((type, props, ...children) =>
  h(type, spoken(props), ...children.map((child) => shown(child, type))),
);

function shown(child: Children, type: unknown): Children {
  if (Array.isArray(child)) return child.map((one) => shown(one, type));
  return typeof child === "string" ? isolated(plain(child), type) : child;
}

/** Names in scripts that are written from right to left, up to what separates names here. */
const RIGHT_TO_LEFT =
  /([^\s/:,()]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}][^\s/:,()]*)/u;

/** Keeps such names from moving what stands beside them. Titles, options and pictures hold text alone. */
function isolated(text: string, type: unknown): Children {
  if (["title", "option", "text"].includes(`${type}`) || !RIGHT_TO_LEFT.test(text)) return text;
  return text.split(RIGHT_TO_LEFT).map((part, index) => (index % 2 === 1 ? h("bdi", null, part) : part));
}

/** Attributes whose text people see or hear. */
function spoken(props: Record<string, unknown> | null): Record<string, unknown> | null {
  for (const name of ["title", "aria-label", "data-head"]) {
    const text = props?.[name];
    if (props !== null && typeof text === "string") props[name] = plain(text);
  }
  return props;
}

/** Shows control and direction characters as numbers: they would change the text around them. */
export function plain(text: string): string {
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

/** What every view gets: the part of the URL after `?`, and the daemon's state. */
export interface ViewProps {
  readonly query: URLSearchParams;
  readonly state: State;
}

/** @returns a function that draws the component again. */
function useRedraw(): () => void {
  const [, redraw] = useReducer<number, undefined>((count) => count + 1, 0);
  return () => redraw(undefined);
}

/** Draws the component again when the daemon's state changes. */
export function useChanges(state: State): void {
  const redraw = useRedraw();
  useEffect(() => state.onChange(redraw), [state]);
}

/** What changes with time alone, drawn every second. */
export function Ticking({ draw }: { readonly draw: () => Children }) {
  const redraw = useRedraw();
  useEffect(() => {
    const timer = window.setInterval(redraw, 1000);
    return () => window.clearInterval(timer);
  }, []);
  return draw();
}

/** Asks now, when the query changes (people are typing), and when the daemon may serve something else. */
export function useQuestion<Answer>(
  path: string,
  query: Readonly<Record<string, string>> | undefined,
  state?: State,
): Question<Answer> {
  const redraw = useRedraw();
  const [question] = useState(() => new Question<Answer>(path, redraw));
  useEffect(() => {
    if (query !== undefined) question.ask(query, question.answer === undefined ? 0 : 150);
  }, [JSON.stringify(query)]);
  useEffect(() => {
    let place = state?.place;
    const stop = state?.onChange(() => {
      if (state.place !== place) question.again();
      place = state.place;
    });
    return () => {
      stop?.();
      question.end();
    };
  }, []);
  return question;
}

/** The URL of a view. Empty values are left out. */
export function urlOf(view: string, query: Readonly<Record<string, string>> = {}): string {
  const said = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  return said.size === 0 ? `#/${view}` : `#/${view}?${said}`;
}

/** The path of a node's page through the API server, from which the paths of other nodes' pages follow. */
const THROUGH_API_SERVER = /^(.*\/api\/v1\/nodes\/)[^/]+?((?::|%3A)\d+\/proxy\/)/i;

/** A name as a link: a node to its own page if the path of that page is known, others to the Services that have to do with it. */
export function nameLink(name: string, kind: NameKind, isHere = false): VNode | VNode[] {
  const [, before, behind] = (kind === "node" && THROUGH_API_SERVER.exec(location.pathname)) || [];
  const page = before && `${before}${encodeURIComponent(name)}${behind}${location.hash}`;
  const search = kind === "pod" ? name.replace(/^.*\//, "") : name;
  return html`<a href=${isHere ? "#/node" : (page ?? urlOf("services", { search }))}>${name}</a>`;
}

/** A sentence with its names as links. */
export const linked = (text: string, names: Names, here?: string): Children =>
  wordsIn(text).map((word) => {
    const kind = names.get(word);
    return kind === undefined ? word : nameLink(word, kind, word === here);
  });

/** A verdict in a word or two. */
export const badge = (kind: "good" | "warn" | "bad", text: string): VNode | VNode[] =>
  html`<span class=${`badge ${kind}`}>${text}</span>`;

/** What is shown while there is no answer, and why there is none. */
export function waiting({
  answer,
  failure,
}: Pick<Question<unknown>, "answer" | "failure">): VNode | VNode[] | undefined {
  if (failure !== "") return html`<p role="alert" class="error">${failure}</p>`;
  return answer === undefined ? html`<p role="status">Loading …</p>` : undefined;
}

/** A table. Each row is a list of cells; the first is its heading. In narrow windows rows become blocks. */
export function tableOf(
  caption: string,
  names: readonly string[],
  rows: readonly (readonly Children[])[],
  kind = "",
  headOf: (name: string) => Children = (name) => html`<th scope="col">${name}</th>`,
) {
  return html`<table class=${`endpoints ${kind}`}>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${names.map(headOf)}</tr></thead>
    <tbody>${rows.map(
      (cells) =>
        html`<tr>${cells.map((cell, at) =>
          at === 0 ? html`<th scope="row">${cell}</th>` : html`<td data-head=${names[at]}>${cell}</td>`,
        )}</tr>`,
    )}</tbody>
  </table>`;
}

/** A scrollable container for content that may be wider than the window. */
export const scrolling = (label: string, content: Children): VNode | VNode[] =>
  html`<div class="scroll" tabindex="0" role="group" aria-label=${label}>${content}</div>`;

/** List items, one for each text. */
export const itemsOf = (texts: readonly Children[]) => texts.map((text) => html`<li>${text}</li>`);

/** The search field of a list. */
export const searchField = (value: string, placeholder: string, onInput: (text: string) => void) => html`
  <label for="search">Search</label>
  <input type="search" id="search" dir="auto" placeholder=${placeholder} autocomplete="off" spellcheck="false" value=${value}
    onInput=${({ currentTarget }: { currentTarget: HTMLInputElement }) => onInput(currentTarget.value)} />`;

export function timeText(ms: number): string {
  const [time, now] = [new Date(ms), new Date()];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Milliseconds with the significant digits: `0.04`, `1.2`, `250`. */
export function msText(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}

/** How long ago, such as `12 min`. */
export const ageText = (ms: number): string => durationText(Math.max(0, Math.round(ms / 1000)));

/** `no Services`, `1 Service`, `5,000 Services`. */
export function numbered(count: number, what: string): string {
  return `${count === 0 ? "no" : count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
}
