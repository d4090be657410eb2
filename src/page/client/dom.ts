/** Elements out of data. Text is only ever set as text: what a name has in it is shown, and never obeyed. */

type Child = Node | string | undefined | false;
type Children = Child | readonly Child[];
type Attributes = Readonly<Record<string, string | number | boolean | undefined | ((event: Event) => void)>>;

const SVG = "http://www.w3.org/2000/svg";

/** Functions are listeners, `true` is an attribute without a value, `false` and undefined are left out. */
function filled<E extends Element>(element: E, attributes: Attributes, children: Children): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of [children].flat()) if (child !== undefined && child !== false) element.append(child);
  return element;
}

export function el<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  children: Children = [],
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(name), attributes, children);
}

/** An element of a picture. */
export function svg(name: string, attributes: Attributes = {}, children: Children = []): SVGElement {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** A verdict in a word or two. */
export function badge(kind: "good" | "warn" | "bad", text: string): HTMLElement {
  return el("span", { class: `badge ${kind}` }, plain(text));
}

/** The parts of a table that has its columns named. */
export function tableParts(names: readonly string[], body: HTMLElement, ...caption: HTMLElement[]): HTMLElement[] {
  const head = names.map((name) => el("th", { scope: "col" }, name));
  return [...caption, el("thead", {}, el("tr", {}, head)), body];
}

/** What may be wider than the window. */
export function scrolling(label: string, content: Element): HTMLElement {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, content);
}

/** Of a list, one for each sentence. */
export function itemsOf(texts: readonly string[]): HTMLElement[] {
  return texts.map((text) => el("li", {}, plain(text)));
}

/** Something to type or choose, with what it is for. */
export function labelled(label: string, input: HTMLElement): Child[] {
  return [el("label", { for: input.id }, label), input];
}

/** What a list is searched with. */
export function searchField(query: URLSearchParams, placeholder: string, input: () => void): HTMLInputElement {
  const value = query.get("search") ?? "";
  const attributes = { type: "search", id: "search", placeholder, autocomplete: "off", spellcheck: "false" };
  return el("input", { ...attributes, value, input });
}

/** The element with this id, which the document has. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the document has no #${id}`);
  return element;
}

/** Control and direction characters are shown as their numbers: they would change what stands beside them. */
export function plain(text: string): string {
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

export function timeText(ms: number): string {
  const [time, now] = [new Date(ms), new Date()];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Milliseconds with the digits that say something: `0.04`, `1.2`, `250`. */
export function msText(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
