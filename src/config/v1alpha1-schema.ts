/**
 * The schema of `kubeproxy.config.k8s.io/v1alpha1` KubeProxyConfiguration: every field, its type, and what stands for
 * "not set". Defaults are applied later (`defaults.ts`); here a missing field is the zero value of its Go type, and a
 * field that upstream keeps as a pointer is `undefined`.
 *
 * The message of each check is the name of the Go type, because that is what upstream's type errors end with.
 * Reference configuration.md §3.1, §3.2.
 */
import * as v from "valibot";
import { MODES, sectionNameOf } from "../dataplane/registry.ts";
import { parseDuration } from "../text/duration.ts";
import { quoteGo, toFloat32 } from "../text/go-text.ts";
import type { ModeSections } from "./config.ts";
import { parseQuantity, type Quantity, ZERO_QUANTITY } from "./quantity.ts";
import type { FieldKind, SectionFields } from "./section-fields.ts";
import type { ConfigurationDocument, FlushFrequency } from "./v1alpha1-document.ts";

/** What upstream calls a nested object, and its fields: needed for error texts and for finding unknown fields. */
export interface StructInfo {
  readonly goName: string;
  readonly fields: Readonly<Record<string, object>>;
}

const structs = new WeakMap<object, StructInfo>();
const listElements = new WeakMap<object, object>();

/** The struct behind a field's schema, or `undefined` for a scalar, a list or a map. */
export function structOf(schema: object): StructInfo | undefined {
  return structs.get(schema);
}

/** The element schema behind a list's schema, or `undefined` for anything else. */
export function elementOf(schema: object): object | undefined {
  return listElements.get(schema);
}

/** null is an unset object; a list is not taken for an object, as Valibot alone would. */
const objectInput = (goType: string) =>
  v.pipe(
    v.unknown(),
    v.transform((value) => value ?? {}),
    v.check((value) => !Array.isArray(value), goType),
  );

function struct<const E extends v.ObjectEntries>(goType: string, fields: E) {
  const schema = v.optional(v.pipe(objectInput(goType), v.object(fields, goType)), {});
  structs.set(schema, { goName: goType.slice(goType.indexOf(".") + 1), fields });
  return schema;
}

function list<const S extends v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>>(goType: string, element: S) {
  const schema = v.nullish(v.array(element, goType), []);
  listElements.set(schema, element);
  return schema;
}

const text = (goType = "string") => v.nullish(v.string(goType), "");
const bool = () => v.nullish(v.boolean("bool"), false);
const optionalBool = () => v.nullish(v.boolean("bool"));

const integer = (goType: string, least: number, greatest: number) =>
  v.pipe(
    v.number(goType),
    v.check((n) => Number.isInteger(n) && n >= least && n <= greatest, goType),
  );
const anyInt32 = () => integer("int32", -(2 ** 31), 2 ** 31 - 1);
const int32 = () => v.nullish(anyInt32(), 0);
const optionalInt32 = () => v.nullish(anyInt32());
const uint32 = (goType: string) => v.nullish(integer(goType, 0, 2 ** 32 - 1), 0);
const float32 = () =>
  v.nullish(
    v.pipe(
      v.number("float32"),
      v.check((n) => Number.isFinite(Math.fround(n)), "float32"),
      v.transform(toFloat32),
    ),
    0,
  );

const durationText = () =>
  v.pipe(
    v.string("string"),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const read = parseDuration(dataset.value);
      if (read.ok) return read.value;
      addIssue({ message: read.error });
      return NEVER;
    }),
  );

/** A plain duration: absent is zero, but an explicit null is read as an empty text and refused. */
const duration = () =>
  v.optional(
    v.pipe(
      v.unknown(),
      v.transform((value) => value ?? ""),
      durationText(),
    ),
    "0s",
  );
const optionalDuration = () => v.nullish(durationText());

const flushFrequency = () =>
  v.nullish(
    v.pipe(
      v.unknown(),
      v.rawTransform(({ dataset, addIssue, NEVER }): FlushFrequency => {
        const value = dataset.value;
        if (typeof value === "number" && Number.isInteger(value) && Math.abs(value) <= 2 ** 63 && value !== 2 ** 63) {
          return { nanoseconds: BigInt(value), asText: false };
        }
        if (typeof value === "string") {
          const read = parseDuration(value);
          if (read.ok) return { nanoseconds: read.value, asText: true };
          addIssue({ message: read.error });
          return NEVER;
        }
        const shown = JSON.stringify(value);
        const kind = typeof value === "number" ? `number ${shown}` : jsonKind(value);
        addIssue({
          message: `invalid duration ${quoteGo(shown)}: json: cannot unmarshal ${kind} into Go value of type time.Duration`,
        });
        return NEVER;
      }),
    ),
    "0s",
  );

const quantity = () =>
  v.nullish(
    v.pipe(
      v.unknown(),
      v.rawTransform(({ dataset, addIssue, NEVER }): Quantity => {
        const value = dataset.value;
        const read = parseQuantity(typeof value === "string" ? value : JSON.stringify(value));
        if (read.ok) return read.value;
        addIssue({ message: read.error });
        return NEVER;
      }),
    ),
    ZERO_QUANTITY.text,
  );

/** The JSON word for the kind of a value, as Go's decoder names it. */
export function jsonKind(value: unknown): string {
  if (Array.isArray(value)) return "array";
  if (typeof value === "boolean") return "bool";
  return value === null ? "null" : typeof value;
}

const outputRouting = () => ({ splitStream: bool(), infoBufferSize: quantity() });

const logging = struct("v1.LoggingConfiguration", {
  format: text(),
  flushFrequency: flushFrequency(),
  verbosity: uint32("v1.VerbosityLevel"),
  vmodule: list(
    "v1.VModuleConfiguration",
    struct("v1.VModuleItem", { filePattern: text(), verbosity: uint32("v1.VerbosityLevel") }),
  ),
  options: struct("v1.FormatOptions", {
    text: struct("v1.TextOptions", outputRouting()),
    json: struct("v1.JSONOptions", outputRouting()),
  }),
});

const strings = () => list("[]string", text());

const FIELD_SCHEMAS: Readonly<Record<FieldKind, () => v.GenericSchema>> = {
  text,
  texts: strings,
  bool,
  optionalBool,
  optionalInt32,
  duration,
  optionalDuration,
};

/** The sections of the modes, by name. The types come from the same tables: {@link ConfigurationDocument}. */
function modeSections(): Readonly<Record<string, v.GenericSchema>> {
  const section = ({ goType, fields }: { readonly goType: string; readonly fields: SectionFields }) =>
    struct(goType, Object.fromEntries(Object.entries(fields).map(([name, kind]) => [name, FIELD_SCHEMAS[kind]()])));
  return Object.fromEntries(MODES.map((mode) => [sectionNameOf(mode), section(mode.config)]));
}

/** The whole document. The order of the fields is the order of `/configz`. */
export const configurationSchema = struct("v1alpha1.KubeProxyConfiguration", {
  kind: text(),
  apiVersion: text(),
  featureGates: v.optional(
    v.pipe(
      objectInput("map[string]bool"),
      v.record(v.string(), v.nullish(v.boolean("bool"), false), "map[string]bool"),
    ),
    {},
  ),
  clientConnection: struct("v1alpha1.ClientConnectionConfiguration", {
    kubeconfig: text(),
    acceptContentTypes: text(),
    contentType: text(),
    qps: float32(),
    burst: int32(),
  }),
  logging,
  hostnameOverride: text(),
  bindAddress: text(),
  healthzBindAddress: text(),
  metricsBindAddress: text(),
  bindAddressHardFail: bool(),
  enableProfiling: bool(),
  showHiddenMetricsForVersion: text(),
  mode: text("v1alpha1.ProxyMode"),
  ...modeSections(),
  detectLocalMode: text("v1alpha1.LocalMode"),
  detectLocal: struct("v1alpha1.DetectLocalConfiguration", { bridgeInterface: text(), interfaceNamePrefix: text() }),
  clusterCIDR: text(),
  nodePortAddresses: strings(),
  oomScoreAdj: optionalInt32(),
  conntrack: struct("v1alpha1.KubeProxyConntrackConfiguration", {
    maxPerCore: optionalInt32(),
    min: optionalInt32(),
    tcpEstablishedTimeout: optionalDuration(),
    tcpCloseWaitTimeout: optionalDuration(),
    tcpBeLiberal: bool(),
    udpTimeout: duration(),
    udpStreamTimeout: duration(),
  }),
  configSyncPeriod: duration(),
  portRange: text(),
  udpIdleTimeout: duration(),
  windowsRunAsService: bool(),
  windowsPriorityClass: text(),
  compatibility: text(),
});

/** Reads a document. Its type is written out, because a program without a configuration file must not load the schema. */
export function parseDocument(
  value: unknown,
):
  | { readonly ok: true; readonly document: ConfigurationDocument }
  | { readonly ok: false; readonly issues: [v.BaseIssue<unknown>, ...v.BaseIssue<unknown>[]] } {
  const result = v.safeParse(configurationSchema, value);
  if (!result.success) return { ok: false, issues: result.issues };
  // The sections are made from the modes' tables, whose types TypeScript cannot follow through `Object.fromEntries`;
  // all else is checked here.
  const document: Omit<ConfigurationDocument, keyof ModeSections<"document">> = result.output;
  return { ok: true, document: document as ConfigurationDocument };
}
