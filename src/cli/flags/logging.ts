/** The flags of the logging section; they win over the configuration file. Reference start.md §2.2, §2.3. */
import type { LoggingConfig, LogOutput } from "../../config/config.ts";
import { type AnyFlag, flagsIn } from "../../config/flag.ts";
import {
  boolType,
  durationType,
  quantityType,
  stringType,
  verbosityType,
  vmoduleType,
} from "../../config/flag-types.ts";
import { ZERO_QUANTITY } from "../../config/quantity.ts";
import { durationToMs } from "../../text/duration.ts";

const loggingFlag = flagsIn("logging");

/** A change of one of the formats' options. */
const inFormat = (format: "text" | "json", { options }: LoggingConfig, change: Partial<LogOutput>) => ({
  options: { ...options, [format]: { ...options[format], ...change } },
});

function outputFlags(format: "text" | "json"): readonly AnyFlag[] {
  return [
    loggingFlag({
      name: `log-${format}-info-buffer-size`,
      type: quantityType,
      initial: ZERO_QUANTITY,
      help: `How much ${format} output may wait in memory when the streams are split; 0 writes at once. Alpha: needs the gate LoggingAlphaOptions.`,
      sets: (infoBufferSize, before) => inFormat(format, before, { infoBufferSize }),
    }),
    loggingFlag({
      name: `log-${format}-split-stream`,
      type: boolType,
      initial: false,
      help: `In ${format} format, errors go to standard error and the rest to standard output. Alpha: needs the gate LoggingAlphaOptions.`,
      sets: (splitStream, before) => inFormat(format, before, { splitStream }),
    }),
  ];
}

export const LOGGING_FLAGS: readonly AnyFlag[] = [
  loggingFlag({
    name: "log-flush-frequency",
    type: durationType,
    initial: 5_000_000_000n,
    help: "The longest time that log lines stay unwritten.",
    sets: (period) => ({ flushFrequencyMs: durationToMs(period) }),
  }),
  ...outputFlags("json"),
  ...outputFlags("text"),
  loggingFlag({
    name: "logging-format",
    type: stringType,
    initial: "text",
    help: 'The format of log lines: "text" or "json".',
    sets: (format) => ({ format }),
  }),
  loggingFlag({
    name: "v",
    shorthand: "v",
    type: verbosityType,
    initial: 0,
    help: "How much is logged: 0 life cycle, 2 syncs, 4 single events, 9 whole rule sets.",
    sets: (verbosity) => ({ verbosity }),
  }),
  loggingFlag({
    name: "vmodule",
    type: vmoduleType,
    initial: [],
    help: "Verbosity for the source files that match a pattern; text format only.",
    // In front of the file's own items: the first match decides.
    sets: (items, { vmodule }) => ({ vmodule: [...items, ...vmodule] }),
  }),
];
