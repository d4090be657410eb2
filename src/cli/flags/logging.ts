/** The flags of the logging section; they win over the configuration file. Reference start.md §2.2, §2.3. */
import type { DraftConfig, LoggingConfig, LogOutput } from "../../config/config.ts";
import { type AnyFlag, flag } from "../../config/flag.ts";
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

const withLogging = (config: DraftConfig, change: Partial<LoggingConfig>): DraftConfig => ({
  ...config,
  logging: { ...config.logging, ...change },
});

const withOutput = (config: DraftConfig, format: "text" | "json", change: Partial<LogOutput>): DraftConfig => {
  const { options } = config.logging;
  return withLogging(config, { options: { ...options, [format]: { ...options[format], ...change } } });
};

function outputFlags(format: "text" | "json"): readonly AnyFlag[] {
  return [
    flag({
      name: `log-${format}-info-buffer-size`,
      type: quantityType,
      initial: ZERO_QUANTITY,
      help: `How much ${format} output may wait in memory when the streams are split; 0 writes at once. Alpha: needs the gate LoggingAlphaOptions.`,
      overlay: (config, infoBufferSize) => withOutput(config, format, { infoBufferSize }),
    }),
    flag({
      name: `log-${format}-split-stream`,
      type: boolType,
      initial: false,
      help: `In ${format} format, errors go to standard error and the rest to standard output. Alpha: needs the gate LoggingAlphaOptions.`,
      overlay: (config, splitStream) => withOutput(config, format, { splitStream }),
    }),
  ];
}

export const LOGGING_FLAGS: readonly AnyFlag[] = [
  flag({
    name: "log-flush-frequency",
    type: durationType,
    initial: 5_000_000_000n,
    help: "The longest time that log lines stay unwritten.",
    overlay: (config, period) => withLogging(config, { flushFrequencyMs: durationToMs(period) }),
  }),
  ...outputFlags("json"),
  ...outputFlags("text"),
  flag({
    name: "logging-format",
    type: stringType,
    initial: "text",
    help: 'The format of log lines: "text" or "json".',
    overlay: (config, format) => withLogging(config, { format }),
  }),
  flag({
    name: "v",
    shorthand: "v",
    type: verbosityType,
    initial: 0,
    help: "How much is logged: 0 life cycle, 2 syncs, 4 single events, 9 whole rule sets.",
    overlay: (config, verbosity) => withLogging(config, { verbosity }),
  }),
  flag({
    name: "vmodule",
    type: vmoduleType,
    initial: [],
    help: "Verbosity for the source files that match a pattern; text format only.",
    // In front of the file's own items: the first match decides.
    overlay: (config, items) => withLogging(config, { vmodule: [...items, ...config.logging.vmodule] }),
  }),
];
