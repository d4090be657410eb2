/** The label and field selectors that kube-proxy's watches use. */
import type { StoredObject } from "./object-store.ts";

export type Predicate = (object: StoredObject) => boolean;

/**
 * `!key`, `key`, `key=value`, `key!=value`, `key in (value,value)`, joined by commas.
 *
 * @throws Error for anything else.
 */
export function labelSelector(text: string): Predicate {
  return every(text, (term) => {
    const missing = /^!([\w./-]+)$/.exec(term)?.[1];
    if (missing !== undefined) return (object) => object.metadata.labels?.[missing] === undefined;
    const [, one, list = ""] = /^([\w./-]+) in \(([\w.,-]*)\)$/.exec(term) ?? [];
    if (one !== undefined) return (object) => list.split(",").includes(object.metadata.labels?.[one] ?? "");
    const [, key = "", operator, value] = /^([\w./-]+)(?:(!?==?)([\w.-]*))?$/.exec(term) ?? fail(term);
    if (operator === undefined) return (object) => object.metadata.labels?.[key] !== undefined;
    const isWanted = !operator.startsWith("!");
    return (object) => (object.metadata.labels?.[key] === value) === isWanted;
  });
}

/**
 * `path=value` and `path!=value`, joined by commas; an absent field counts as empty.
 *
 * @throws Error for fields that the real server does not support.
 */
export function fieldSelector(text: string): Predicate {
  return every(text, (term) => {
    const [, path = "", operator = "", value = ""] = /^([\w.]+)(!?==?)(.*)$/.exec(term) ?? fail(term);
    if (!SELECTABLE.has(path)) throw new Error(`field label not supported: ${path}`);
    const isWanted = !operator.startsWith("!");
    return (object) => (fieldText(object, path) === value) === isWanted;
  });
}

const SELECTABLE = new Set(["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"]);

function every(text: string, parse: (term: string) => Predicate): Predicate {
  const predicates = text === "" ? [] : text.split(/,(?![^(]*\))/).map(parse);
  return (object) => predicates.every((predicate) => predicate(object));
}

function fieldText(object: StoredObject, path: string): string {
  let value: unknown = object;
  for (const key of path.split(".")) {
    value =
      typeof value === "object" && value !== null ? Object.entries(value).find(([name]) => name === key)?.[1] : "";
  }
  return typeof value === "string" ? value : "";
}

function fail(term: string): never {
  throw new Error(`unable to parse requirement: ${term}`);
}
