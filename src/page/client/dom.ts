/** Elements out of data. Text is only ever set as text: what a name has in it is shown, and never obeyed. */

type Child = Node | string | null | undefined | false;
type Attributes = Readonly<Record<string, string | number | boolean | undefined | ((event: Event) => void)>>;

const SVG = "http://www.w3.org/2000/svg";

/** Functions are listeners, `true` is an attribute without a value, `false` and undefined are left out. */
function fill(element: Element, attributes: Attributes, children: readonly Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined && child !== false) element.append(child);
}

export function el<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Attributes = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  fill(element, attributes, children);
  return element;
}

/** An element of a picture. */
export function svg(name: string, attributes: Attributes = {}, ...children: readonly Child[]): SVGElement {
  const element = document.createElementNS(SVG, name);
  fill(element, attributes, children);
  return element;
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

export function timeText(ms: number, nowMs = Date.now()): string {
  const [time, now] = [new Date(ms), new Date(nowMs)];
  return time.toDateString() === now.toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

/** Milliseconds with the digits that say something: `0.04`, `1.2`, `250`. */
export function msText(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}
