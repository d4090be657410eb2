/**
 * Decoding a configuration file: kind and version, types, unknown and duplicate fields.
 * Reference configuration.md §3.1.
 */

import { API_VERSION, KIND } from "../../contract/config/config.ts";
import {
  emptyObject,
  type Field,
  type FieldKind,
  type FieldTypes,
  type Struct,
  zeroOf,
} from "../../contract/config/document-fields.ts";
import { parseQuantity } from "../../contract/config/quantity.ts";
import type { ConfigurationDocument } from "../../contract/config/v1alpha1-document.ts";
import { configTextOf, TextSyntaxError } from "../../text/decode-text.ts";
import { parseDuration } from "../../text/duration.ts";
import { type Parsed, quoteGo, toFloat32 } from "../../text/go-text.ts";
import { type ConfigText, type JsonValue, readConfigText } from "../../text/upstream-yaml.ts";
import { CONFIGURATION } from "./defaults.ts";

/** A file that cannot be used at all; the message begins with `failed to decode: `. */
export class ConfigDecodeError extends Error {
  override readonly name = "ConfigDecodeError";
  constructor(reason: string, options?: ErrorOptions) {
    super(`failed to decode: ${reason}`, options);
  }
}

/** Where upstream registers its kinds: part of its error text. */
const SCHEME = "pkg/proxy/apis/config/scheme/scheme.go:30";
const TYPE_META =
  'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }';

type JsonObject = { readonly [key: string]: JsonValue };

/**
 * Decodes a configuration file, given as bytes or as text. Does not apply defaults.
 *
 * @returns the document, and what strict decoding rejects and lenient decoding drops; `undefined` if strict decoding succeeds.
 * @throws {@link ConfigDecodeError} for text that is not YAML or JSON, another kind or version, or a wrong type.
 */
export function decodeConfiguration(file: string | Uint8Array) {
  const { text, root, duplicates } = readConfiguration(file);
  const unknown: string[] = [];
  const document = readStruct(requireKind(root, text), CONFIGURATION, { holder: "", fields: "", path: "" }, unknown);
  const problems = [...duplicates, ...unknown.map((path) => `unknown field ${quoteGo(path)}`)];
  return {
    // The fields are those of the table, which TypeScript cannot follow through a loop.
    document: document as unknown as ConfigurationDocument,
    strictError: problems.length === 0 ? undefined : `strict decoding error: ${problems.join(", ")}`,
  };
}

/**
 * The text of a configuration file, or of the configuration in a ConfigMap, and its values.
 *
 * @throws {@link ConfigDecodeError} for text that is not YAML or JSON, and for a ConfigMap without a configuration
 */
export function readConfiguration(file: string | Uint8Array): ConfigText & { readonly text: string } {
  try {
    const text = configTextOf(typeof file === "string" ? Buffer.from(file) : file);
    const found = readConfigText(text);
    const inner = configurationIn(found.root);
    return inner === undefined ? { text, ...found } : { text: inner, ...readConfigText(inner) };
  } catch (error) {
    if (error instanceof TextSyntaxError) throw new ConfigDecodeError(error.message, { cause: error });
    throw error;
  }
}

const OF_CONFIG_MAPS = /^(?:ConfigMap|List|ConfigMapList)$/;
const IS_CONFIGURATION = new RegExp(`^\\s*"?kind"?:\\s*["']?${KIND}\\b`, "m");

/** The configuration in a ConfigMap, or in a list that has one; undefined for any other kind. @throws ConfigDecodeError if there is none */
function configurationIn(root: JsonValue): string | undefined {
  if (!isObject(root) || typeof root.kind !== "string" || !OF_CONFIG_MAPS.test(root.kind)) return undefined;
  const maps = [root, ...(Array.isArray(root.items) ? root.items : [])].filter(isObject);
  const texts = maps.flatMap(({ data }) => Object.values(isObject(data) ? data : {}));
  const found = texts.find((text) => typeof text === "string" && IS_CONFIGURATION.test(text));
  if (typeof found === "string") return found;
  throw new ConfigDecodeError(
    `the ${root.kind} has no ${KIND}; kubeadm keeps it in data["config.conf"] of kube-system/kube-proxy`,
  );
}

/** Tells the user what to do where upstream only says what is missing. */
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

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The kind of a JSON value, as Go's decoder names it. */
function jsonKind(value: JsonValue): string {
  if (Array.isArray(value)) return "array";
  if (typeof value === "boolean") return "bool";
  return value === null ? "null" : typeof value;
}

interface Place {
  /** Go's name for the innermost object. */
  readonly holder: string;
  /** The path from the root, without list indices. */
  readonly fields: string;
  /** The same with list indices. */
  readonly path: string;
}

/** Reads an object key by key, as upstream does: of several errors, the first in the document is reported. */
function readStruct(value: JsonValue, struct: Struct, at: Place, unknown: string[]): Record<string, unknown> {
  if (value !== null && !isObject(value)) return mismatch(value, struct.goType, at);
  const holder = struct.goType.slice(struct.goType.indexOf(".") + 1);
  const found = emptyObject(struct.fields);
  for (const [name, item] of Object.entries(value ?? {})) {
    const field = Object.hasOwn(struct.fields, name) ? struct.fields[name] : undefined;
    const path = at.path === "" ? name : `${at.path}.${name}`;
    const place = { holder, fields: at.fields === "" ? name : `${at.fields}.${name}`, path };
    if (field === undefined) unknown.push(path);
    else found[name] = readField(item, field, place, unknown);
  }
  return found;
}

function readField(value: JsonValue, field: Field, at: Place, unknown: string[]): unknown {
  if (typeof field === "string") {
    const readValue: Reader<unknown> = READERS[field];
    // An explicit null leaves a field unset, except that a plain duration reads it as an empty text.
    return value === null && field !== "duration" ? zeroOf(field) : readValue(value, at);
  }
  if ("fields" in field) return readStruct(value, field, at, unknown);
  const items = readList(value ?? [], field.goType, at);
  return items.map((item, index) => readStruct(item, field.each, { ...at, path: `${at.path}[${index}]` }, unknown));
}

type Reader<T> = (value: JsonValue, at: Place) => T;

function readList(value: JsonValue, goType: string, at: Place): readonly JsonValue[] {
  return Array.isArray(value) ? value : mismatch(value, goType, at);
}

const textOf =
  (goType: string): Reader<string> =>
  (value, at) =>
    typeof value === "string" ? value : mismatch(value, goType, at);

const readText = textOf("string");
const readBool: Reader<boolean> = (value, at) => (typeof value === "boolean" ? value : mismatch(value, "bool", at));

const integerOf =
  (goType: string, least: number, greatest: number): Reader<number> =>
  (value, at) =>
    typeof value === "number" && Number.isInteger(value) && value >= least && value <= greatest
      ? value
      : mismatch(value, goType, at, numberKind(value));

const readInt32 = integerOf("int32", -(2 ** 31), 2 ** 31 - 1);
const readDuration: Reader<bigint> = (value, at) => readable(parseDuration(readText(value ?? "", at)), at);

const READERS: { readonly [K in FieldKind]: Reader<FieldTypes[K]> } = {
  text: readText,
  proxyMode: textOf("v1alpha1.ProxyMode"),
  localMode: textOf("v1alpha1.LocalMode"),
  texts: (value, at) => readList(value, "[]string", at).map((item) => readText(item ?? "", at)),
  bool: readBool,
  optionalBool: readBool,
  int32: readInt32,
  optionalInt32: readInt32,
  verbosity: integerOf("v1.VerbosityLevel", 0, 2 ** 32 - 1),
  uint32: integerOf("uint32", 0, 2 ** 32 - 1),
  float32: (value, at) =>
    typeof value === "number" && Number.isFinite(Math.fround(value))
      ? toFloat32(value)
      : mismatch(value, "float32", at, numberKind(value)),
  duration: readDuration,
  optionalDuration: readDuration,
  flushFrequency(value, at) {
    if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) <= 2 ** 63 && value !== 2 ** 63) {
      return { nanoseconds: BigInt(value), asText: false };
    }
    if (typeof value === "string") return { nanoseconds: readable(parseDuration(value), at), asText: true };
    const error = `invalid duration ${quoteGo(JSON.stringify(value))}: json: cannot unmarshal ${numberKind(value)} into Go value of type time.Duration`;
    return readable({ ok: false, error }, at);
  },
  quantity: (value, at) => readable(parseQuantity(typeof value === "string" ? value : JSON.stringify(value)), at),
  gates(value, at) {
    if (!isObject(value)) return mismatch(value, "map[string]bool", at);
    return Object.fromEntries(Object.entries(value).map(([name, isOn]) => [name, readBool(isOn ?? false, at)]));
  },
};

/** A number with its value, which may have the wrong size or form; the kind of anything else. */
function numberKind(value: JsonValue): string {
  return typeof value === "number" ? `number ${JSON.stringify(value)}` : jsonKind(value);
}

/** A wrong type, in the words of Go's decoder. */
function mismatch(value: JsonValue, goType: string, { holder, fields }: Place, kind = jsonKind(value)): never {
  throw new ConfigDecodeError(
    `json: cannot unmarshal ${kind} into Go struct field ${holder}.${fields} of type ${goType}`,
  );
}

/** The parsed value. Adds the field to upstream's error text, which does not name it. */
function readable<T>(result: Parsed<T>, { path }: Place): T {
  if (result.ok) return result.value;
  throw new ConfigDecodeError(`${result.error} (field ${path})`);
}
