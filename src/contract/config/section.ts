/**
 * A section of the configuration, in which each setting is declared once: kind, default and flag. Resolving a document and
 * writing settings back work the same way for all settings. Reference configuration.md §3.2–3.4.
 */
import { durationFromMs, durationToMs, formatMs } from "../../text/duration.ts";
import type { DraftConfig } from "./config.ts";
import {
  type DocumentOf,
  listOrNull,
  type PlainObject,
  type PlainValue,
  type SectionFields,
  type SettingsOf,
} from "./document-fields.ts";
import { type AnyFlag, type FlagFacts, flag } from "./flag.ts";
import {
  boolType,
  durationType,
  type FlagType,
  float32Type,
  gatesType,
  int32Type,
  stringListType,
  stringType,
} from "./flag-types.ts";

interface SettingFlag<Field> extends FlagFacts {
  readonly field: Field;
  /** @default that of the field's kind */
  readonly type?: FlagType<string>;
}

const FLAG_TYPES: Readonly<Record<string, FlagType<unknown>>> = {
  text: stringType,
  proxyMode: { ...stringType, word: "ProxyMode" },
  localMode: { ...stringType, word: "LocalMode" },
  texts: stringListType,
  gates: gatesType,
  bool: boolType,
  optionalBool: boolType,
  float32: float32Type,
  int32: int32Type,
  optionalInt32: int32Type,
  duration: durationType,
  optionalDuration: durationType,
};

/** Settings that several sections of the file have, and the program only once. */
interface SharedSettings {
  readonly periods: PlainObject;
  readonly masqueradeAll: boolean;
}

export class Section<F extends SectionFields> {
  readonly defaults: SettingsOf<F>;
  readonly #name: keyof DraftConfig | undefined;
  readonly #fields: F;
  readonly #initial: ReadonlyMap<string, unknown>;

  /** @param name of the section in the program's configuration; undefined: its fields stand at the top level. */
  constructor(name: keyof DraftConfig | undefined, fields: F, defaults: SettingsOf<F>) {
    this.#name = name;
    this.#fields = fields;
    this.defaults = defaults;
    this.#initial = new Map(Object.entries(defaults));
  }

  /** The zero value of a field that is not a pointer upstream means "not set". */
  resolve(document: DocumentOf<F>): SettingsOf<F> {
    const given = new Map<string, unknown>(Object.entries(document));
    const settings = Object.entries(this.#fields).flatMap(([field, kind]) => {
      const key = this.#keyOf(field);
      if (!this.#initial.has(key)) return [];
      const value = given.get(field);
      const isSet = kind.startsWith("optional") ? value !== undefined && value !== null : Boolean(value);
      return [[key, isSet ? settingOf(value) : this.#initial.get(key)]];
    });
    return Object.fromEntries(settings);
  }

  /** Encodes the settings in field order. @param shared for fields of the section that the program has only once. */
  encode(settings: SettingsOf<F>, shared?: SharedSettings): { readonly [N in keyof F & string]: PlainValue } {
    const known = new Map<string, unknown>(Object.entries(settings));
    const others: PlainObject = { ...shared?.periods, masqueradeAll: shared?.masqueradeAll ?? false };
    const encoded = Object.keys(this.#fields).map((field) => {
      const value = known.get(this.#keyOf(field));
      if (value === undefined) return [field, others[field]];
      if (Array.isArray(value)) return [field, listOrNull(value)];
      return [field, this.#isTime(field) ? formatMs(Number(value)) : value];
    });
    return Object.fromEntries(encoded);
  }

  /** Encodes what differs from the defaults: upstream's decoder does not know these fields. */
  encodeSet(settings: SettingsOf<F>): PlainObject {
    const unset = this.encode(this.defaults);
    return Object.fromEntries(Object.entries(this.encode(settings)).filter(([field, value]) => value !== unset[field]));
  }

  /** Makes flags for settings, in this order. */
  flags(
    flags: { readonly [Field in keyof F & string]?: readonly [name: string, help: string] },
    more: { readonly isExtension?: boolean } = {},
  ): AnyFlag[] {
    const declared = Object.entries<readonly [string, string] | undefined>(flags);
    return declared.flatMap(([field, one]) => (one ? [this.flag({ field, name: one[0], help: one[1], ...more })] : []));
  }

  flag({ field, ...spec }: SettingFlag<keyof F & string>): AnyFlag {
    const key = this.#keyOf(field);
    const initial = this.#initial.get(key);
    const name = this.#name;
    return flag<unknown>({
      type: FLAG_TYPES[this.#fields[field] ?? ""] ?? stringType,
      ...spec,
      initial: this.#isTime(field) ? durationFromMs(Number(initial)) : initial,
      overlay: (config, value) => {
        const own = { [key]: settingOf(value) };
        return { ...config, ...(name === undefined ? own : { [name]: Object.assign({}, config[name], own) }) };
      },
    });
  }

  #isTime(field: string): boolean {
    const kind = this.#fields[field];
    return kind === "duration" || kind === "optionalDuration";
  }

  #keyOf(field: string): string {
    return this.#isTime(field) ? `${field}Ms` : field;
  }
}

/** Durations are nanoseconds in files and flags, and milliseconds here. */
function settingOf(value: unknown): unknown {
  return typeof value === "bigint" ? durationToMs(value) : value;
}
