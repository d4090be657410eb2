/**
 * Decoding a configuration file: kind and version, types, unknown and repeated fields. Pure.
 * Reference configuration.md §3.1.
 */
import type * as v from "valibot";
import { quoteGo } from "../text/go-text.ts";
import { API_VERSION, KIND } from "./config.ts";
import { configTextOf } from "./config-bytes.ts";
import type { ConfigurationDocument } from "./v1alpha1-document.ts";
import {
  configurationSchema,
  elementOf,
  jsonKind,
  parseDocument,
  type StructInfo,
  structOf,
} from "./v1alpha1-schema.ts";
import { ConfigSyntaxError, type ConfigText, type JsonValue, readConfigText } from "./v1alpha1-text.ts";

/** A decoded file. */
interface DecodedConfiguration {
  readonly document: ConfigurationDocument;
  /** What strict decoding refuses and lenient decoding drops; `undefined` when the file is strictly right. */
  readonly strictError: string | undefined;
}

/** A file that cannot be used at all; the message begins with `failed to decode: `. */
export class ConfigDecodeError extends Error {
  override readonly name = "ConfigDecodeError";
  constructor(reason: string, options?: ErrorOptions) {
    super(`failed to decode: ${reason}`, options);
  }
}

/** Where upstream registers its kinds; part of its error text. */
const SCHEME = "pkg/proxy/apis/config/scheme/scheme.go:30";
const TYPE_META =
  'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }';

type JsonObject = { readonly [key: string]: JsonValue };

/**
 * Decodes a configuration file: its bytes, or its text where that is known to be one. Defaults are not applied.
 *
 * @throws {@link ConfigDecodeError} for text that is no YAML or JSON, another kind or version, or a wrong type.
 */
export function decodeConfiguration(file: string | Uint8Array): DecodedConfiguration {
  const { text, root, duplicates } = read(file);
  const object = requireKind(root, text);
  const result = parseDocument(object);
  if (!result.ok) throw new ConfigDecodeError(firstProblem(result.issues, object));
  const unknown: string[] = [];
  collectUnknown(object, configurationSchema, "", unknown);
  const problems = [...duplicates, ...unknown.map((path) => `unknown field ${quoteGo(path)}`)];
  return {
    document: { ...result.document, featureGates: { ...result.document.featureGates, ...unsafeGates(object) } },
    strictError: problems.length === 0 ? undefined : `strict decoding error: ${problems.join(", ")}`,
  };
}

function read(file: string | Uint8Array): ConfigText & { readonly text: string } {
  try {
    const text = configTextOf(typeof file === "string" ? Buffer.from(file) : file);
    return { text, ...readConfigText(text) };
  } catch (error) {
    if (error instanceof ConfigSyntaxError) throw new ConfigDecodeError(error.message, { cause: error });
    throw error;
  }
}

/** Valibot drops keys that could harm a prototype; here they are names like others, and unknown ones. */
const DROPPED_KEYS = ["__proto__", "constructor", "prototype"];

function unsafeGates({ featureGates }: JsonObject): Readonly<Record<string, boolean>> {
  if (featureGates === undefined || !isObject(featureGates)) return {};
  const entries = DROPPED_KEYS.filter((name) => Object.hasOwn(featureGates, name)).map((name) => {
    const value = featureGates[name] ?? false;
    if (typeof value === "boolean") return [name, value] as const;
    throw new ConfigDecodeError(
      `json: cannot unmarshal ${jsonKind(value)} into Go struct field ${KIND}.featureGates of type bool`,
    );
  });
  return Object.fromEntries(entries);
}

/** What to do where upstream only says what is missing. */
const HEAD = `it must have apiVersion: ${API_VERSION} and kind: ${KIND}`;

function requireKind(root: JsonValue, text: string): JsonObject {
  const object = root ?? {};
  if (!isObject(object)) {
    throw new ConfigDecodeError(
      `couldn't get version/kind; json parse error: json: cannot unmarshal ${jsonKind(object)} into Go value of type ${TYPE_META}`,
    );
  }
  const kind = metaText(object, "kind");
  const apiVersion = metaText(object, "apiVersion");
  if (apiVersion.split("/").length > 2) throw new ConfigDecodeError(`unexpected GroupVersion string: ${apiVersion}`);
  if (kind === "") throw new ConfigDecodeError(`Object 'Kind' is missing in '${text}'; ${HEAD}`);
  if (apiVersion === "" || apiVersion.endsWith("/")) {
    throw new ConfigDecodeError(`Object 'apiVersion' is missing in '${text}'; ${HEAD}`);
  }
  if (kind !== KIND || apiVersion !== API_VERSION) {
    throw new ConfigDecodeError(
      `no kind ${quoteGo(kind)} is registered for version ${quoteGo(apiVersion)} in scheme ${quoteGo(SCHEME)}`,
    );
  }
  return object;
}

function metaText(object: JsonObject, field: string): string {
  const value = object[field] ?? "";
  if (typeof value === "string") return value;
  throw new ConfigDecodeError(
    `couldn't get version/kind; json parse error: json: cannot unmarshal ${jsonKind(value)} into Go struct field .${field} of type string`,
  );
}

function isObject(value: JsonValue): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The problem that stands first in the document: upstream decodes key by key and reports that one. */
function firstProblem(issues: readonly v.BaseIssue<unknown>[], root: JsonObject): string {
  const ranked = issues.map((issue) => ({ issue, rank: rankOf(issue, root) }));
  ranked.sort((a, b) => compareRanks(a.rank, b.rank));
  const first = ranked[0]?.issue;
  return first === undefined ? "unknown problem" : problemText(first);
}

function rankOf(issue: v.BaseIssue<unknown>, root: JsonObject): readonly number[] {
  let value: JsonValue | undefined = root;
  return pathOf(issue).map((key) => {
    const holder: JsonValue = value ?? null;
    if (Array.isArray(holder)) {
      value = holder[Number(key)];
      return Number(key);
    }
    value = isObject(holder) ? holder[key] : undefined;
    return isObject(holder) ? Object.keys(holder).indexOf(key) : 0;
  });
}

function compareRanks(a: readonly number[], b: readonly number[]): number {
  for (const [index, rank] of a.entries()) {
    const difference = rank - (b[index] ?? -1);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

function pathOf(issue: v.BaseIssue<unknown>): readonly string[] {
  return (issue.path ?? []).map((item) => String(item.key));
}

/** A type problem in the words of Go's decoder; a text that could not be read keeps its own words, which do not name the field. */
function problemText(issue: v.BaseIssue<unknown>): string {
  if (issue.type === "raw_transform") return `${issue.message} (field ${pathOf(issue).join(".")})`;
  const { holder, fields } = locate(pathOf(issue));
  const input = issue.input;
  // Only a number of the right kind but the wrong size or shape is shown with its value.
  const kind = typeof input === "number" && issue.type === "check" ? `number ${input}` : jsonKind(input);
  return `json: cannot unmarshal ${kind} into Go struct field ${holder}.${fields.join(".")} of type ${issue.message}`;
}

/** The innermost struct on a path, and the path without list positions and map keys. */
function locate(path: readonly string[]): { readonly holder: string; readonly fields: readonly string[] } {
  let schema: object | undefined = configurationSchema;
  let holder: string = KIND;
  const fields: string[] = [];
  for (const key of path) {
    const info: StructInfo | undefined = schema === undefined ? undefined : structOf(schema);
    if (info === undefined) {
      schema = schema === undefined ? undefined : elementOf(schema);
      continue;
    }
    holder = info.goName;
    fields.push(key);
    schema = info.fields[key];
  }
  return { holder, fields };
}

function collectUnknown(value: JsonValue, schema: object, path: string, found: string[]): void {
  const element = elementOf(schema);
  if (element !== undefined && Array.isArray(value)) {
    for (const [index, item] of value.entries()) collectUnknown(item, element, `${path}[${index}]`, found);
    return;
  }
  const info = structOf(schema);
  if (info === undefined || !isObject(value)) return;
  for (const [key, item] of Object.entries(value)) {
    const field = Object.hasOwn(info.fields, key) ? info.fields[key] : undefined;
    const fieldPath = path === "" ? key : `${path}.${key}`;
    if (field === undefined) found.push(fieldPath);
    else collectUnknown(item, field, fieldPath, found);
  }
}
