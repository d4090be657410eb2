/**
 * The types of flag values: how a text is parsed, how a value is shown, and the error for an invalid text.
 * A flag may be given several times; each text is applied to the value so far. Reference start.md §2.1, §2.2.
 */

import { parseIpAddress } from "../../net/ip.ts";
import { parsePortRange } from "../../net/port-range.ts";
import { formatDuration, parseDuration } from "../../text/duration.ts";
import {
  INT32,
  type Parsed,
  parsed,
  parseGoBool,
  parseGoFloat32,
  parseGoInteger,
  quoteGo,
  refused,
  VERBOSITY,
} from "../../text/go-text.ts";
import { splitHostPort } from "./bind-address.ts";
import type { VModuleItem } from "./config.ts";
import { parseQuantity, type Quantity } from "./quantity.ts";

export interface FlagType<T> {
  /** The word in the help text; empty for booleans. */
  readonly word: string;
  /** What the flag means without a value; a flag that has this takes a value only after `=`. */
  readonly bareText?: string;
  read(text: string, soFar: T): Parsed<T>;
  format(value: T): string;
}

const asIs = (text: string): string => text;

export const boolType: FlagType<boolean> = { word: "", bareText: "true", read: parseGoBool, format: String };

export const stringType: FlagType<string> = { word: "string", read: (text) => parsed(text), format: asIs };

export const int32Type: FlagType<number> = {
  word: "int32",
  read: (text) => parseGoInteger(text, INT32),
  format: String,
};

export const float32Type: FlagType<number> = { word: "float32", read: parseGoFloat32, format: String };

/** Durations are nanoseconds. */
export const durationType: FlagType<bigint> = { word: "duration", read: parseDuration, format: formatDuration };

export const verbosityType: FlagType<number> = {
  word: "Level",
  read: (text) => parseGoInteger(text, VERBOSITY),
  format: String,
};

export const quantityType: FlagType<Quantity> = {
  word: "quantity",
  read: parseQuantity,
  format: (quantity) => quantity.text,
};

/** A range of ports, kept as written. */
export const portRangeType: FlagType<string> = {
  word: "port-range",
  read: (text) => {
    const range = parsePortRange(text);
    return range.ok ? parsed(text) : refused(`${quoteGo(text)} is not a port range: ${range.error}`);
  },
  format: asIs,
};

/** An address; the empty text changes nothing. */
export const ipType: FlagType<string> = {
  word: "string",
  read: (text, soFar) => {
    if (text === "") return parsed(soFar);
    return parseIpAddress(text) === undefined ? refused(`${quoteGo(text)} is not a valid IP address`) : parsed(text);
  },
  format: asIs,
};

/** An address with or without a port; the empty text changes nothing. */
export const ipPortType: FlagType<string> = {
  word: "ipport",
  read: (text, soFar) => {
    if (text === "") return parsed(soFar);
    if (parseIpAddress(text) !== undefined) return parsed(text);
    const parts = splitHostPort(text);
    if (parts === undefined) {
      const reason = text.includes(":") ? "too many colons in address" : "missing port in address";
      return refused(`${quoteGo(text)} is not in a valid format (ip or ip:port): address ${text}: ${reason}`);
    }
    const { host, port } = parts;
    if (parseIpAddress(host) === undefined) return refused(`${quoteGo(host)} is not a valid IP address`);
    return /^[0-9]+$/.test(port) && Number(port) <= 65535
      ? parsed(text)
      : refused(`${quoteGo(port)} is not a valid number`);
  },
  format: asIs,
};

/** Comma-separated texts; a second use of the flag adds to the first. Double quotes protect commas. */
export const stringListType: FlagType<readonly string[]> = {
  word: "strings",
  read: (text, soFar) => {
    const fields = readCsv(text);
    return fields === undefined
      ? refused(`parse error on line 1, column ${text.indexOf('"') + 1}: extraneous or missing " in quoted-field`)
      : parsed([...soFar, ...fields]);
  },
  format: (values) => `[${values.map((value) => (/[",\n]/.test(value) ? quoteCsv(value) : value)).join(",")}]`,
};

function readCsv(text: string): readonly string[] | undefined {
  if (text === "") return [];
  const fields: string[] = [];
  let rest = text;
  for (;;) {
    const field = /^(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)/.exec(rest);
    if (field === null) return undefined;
    fields.push(field[1]?.replaceAll('""', '"') ?? field[2] ?? "");
    if (field[0].length === rest.length) return fields;
    rest = rest.slice(field[0].length + 1);
  }
}

function quoteCsv(value: string): string {
  return `"${value.replaceAll('"', '""')}"`;
}

/** `name=bool,…`; later pairs win. */
export const gatesType: FlagType<Readonly<Record<string, boolean>>> = {
  word: "mapStringBool",
  read: (text, soFar) => {
    // A map, because assigning to `__proto__` creates no field.
    const gates = new Map(Object.entries(soFar));
    for (const pair of text.split(",")) {
      if (pair === "") continue;
      const equals = pair.indexOf("=");
      if (equals < 0) return refused("malformed pair, expect string=bool");
      const name = pair.slice(0, equals).trim();
      const word = pair.slice(equals + 1).trim();
      const value = parseGoBool(word);
      if (!value.ok) return refused(`invalid value of ${name}: ${word}, err: ${value.error}`);
      gates.set(name, value.value);
    }
    return parsed(Object.fromEntries(gates));
  },
  format: (gates) =>
    Object.keys(gates)
      .sort()
      .map((name) => `${name}=${gates[name]}`)
      .join(","),
};

/** `pattern=N,…` for log lines of matching source files. */
export const vmoduleType: FlagType<readonly VModuleItem[]> = {
  word: "pattern=N,...",
  read: (text, soFar) => {
    const items: VModuleItem[] = [...soFar];
    for (const item of text.split(",")) {
      if (item === "") continue;
      const parts = item.split("=");
      const [filePattern, level] = parts;
      if (parts.length !== 2 || !filePattern || !level) {
        return refused(`${quoteGo(item)} does not have the pattern=N format`);
      }
      const verbosity = parseGoInteger(level, VERBOSITY);
      if (!verbosity.ok) return refused(`parsing verbosity in ${quoteGo(item)}: ${verbosity.error}`);
      items.push({ filePattern, verbosity: verbosity.value });
    }
    return parsed(items);
  },
  format: (items) => items.map(({ filePattern, verbosity }) => `${filePattern}=${verbosity}`).join(","),
};
