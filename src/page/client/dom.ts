/** Makes elements from data. Text is only ever set as text, so markup in names is shown and never takes effect. */

type Child = Node | string | undefined | false;
type Children = Child | readonly Child[];
type Attributes = Readonly<Record<string, string | number | boolean | undefined | ((event: Event) => void)>>;

const SVG = "http://www.w3.org/2000/svg";

/** Attributes: functions are listeners, `true` is an attribute without a value, `false` and undefined are omitted. */
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

/** An SVG element. */
export function svg(name: string, attributes: Attributes = {}, children: Children = []): SVGElement {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** A verdict in a word or two. */
export function badge(kind: "good" | "warn" | "bad", text: string): HTMLElement {
  return el("span", { class: `badge ${kind}` }, plain(text));
}

/** The parts of a table with column names. */
export function tableParts(names: readonly string[], body: HTMLElement, ...caption: HTMLElement[]): HTMLElement[] {
  const head = names.map((name) => el("th", { scope: "col" }, name));
  return [...caption, el("thead", {}, el("tr", {}, head)), body];
}

/** A scrollable container for content that may be wider than the window. */
export function scrolling(label: string, content: Element): HTMLElement {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, content);
}

/** List items, one for each text. */
export function itemsOf(texts: readonly string[]): HTMLElement[] {
  return texts.map((text) => el("li", {}, plain(text)));
}

/** An input with its label. */
export function labelled(label: string, input: HTMLElement): Child[] {
  return [el("label", { for: input.id }, label), input];
}

/** The search field of a list. */
export function searchField(query: URLSearchParams, placeholder: string, input: () => void): HTMLInputElement {
  const value = query.get("search") ?? "";
  const attributes = { type: "search", id: "search", placeholder, autocomplete: "off", spellcheck: "false" };
  return el("input", { ...attributes, value, input });
}

/** The element with this id. @throws Error if the document does not have it. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the document has no #${id}`);
  return element;
}

/** Shows control and direction characters as numbers: they would change the text around them. */
export function plain(text: string): string {
  return text.replace(/(?! )[\p{C}\p{Z}]/gu, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

export function timeText(ms: number): string {
  const [time, now] = [new Date(ms), new Date()];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Milliseconds with the significant digits: `0.04`, `1.2`, `250`. */
export function msText(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
