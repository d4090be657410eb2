/**
 * Checks of the logging section, which upstream runs twice: first alone, before logging starts, then with the rest.
 * Pure. Reference configuration.md §3.5, last row.
 */

import type { LoggingConfig } from "../config/config.ts";
import type { FeatureGates } from "../config/feature-gates.ts";
import { forbidden, invalid, required } from "../config/field-error.ts";
import { formatMs } from "../text/duration.ts";

const LOG_FORMATS = ["text", "json"] as const;
const MAX_VERBOSITY = 2 ** 31 - 1;

/** The errors of a logging section, in upstream's order; `path` is `logging` or `KubeProxyConfiguration.logging`. */
export function loggingErrors(logging: LoggingConfig, gates: FeatureGates, path: string): readonly string[] {
  const errors: string[] = [];
  const tooVerbose = `Must be <= ${MAX_VERBOSITY}`;
  if (!LOG_FORMATS.some((format) => format === logging.format)) {
    errors.push(invalid(`${path}.format`, logging.format, "Unsupported log format"));
  } else if (logging.format === "json" && !gates.isEnabled("LoggingBetaOptions")) {
    errors.push(forbidden(`${path}.format`, "Log format json is disabled, see LoggingBetaOptions feature"));
  }
  if (logging.flushFrequencyMs <= 0) {
    errors.push(invalid(`${path}.flushFrequency`, formatMs(logging.flushFrequencyMs), "Must be greater than zero"));
  }
  if (logging.verbosity > MAX_VERBOSITY) {
    errors.push(invalid(`${path}.verbosity`, logging.verbosity, tooVerbose));
  }
  if (logging.vmodule.length > 0 && logging.format !== "" && logging.format !== "text") {
    errors.push(forbidden(`${path}.vmodule`, "Only supported for text log format"));
  }
  for (const [index, { filePattern, verbosity }] of logging.vmodule.entries()) {
    const itemPath = `${path}.vmodule[${index}]`;
    if (filePattern === "") errors.push(required(itemPath, "File pattern must not be empty"));
    if (/[=,]/.test(filePattern)) {
      errors.push(invalid(itemPath, filePattern, "File pattern must not contain equal sign or comma"));
    }
    if (verbosity > MAX_VERBOSITY) errors.push(invalid(itemPath, verbosity, tooVerbose));
  }
  if (!gates.isEnabled("LoggingAlphaOptions")) {
    const disabled = "Feature LoggingAlphaOptions is disabled";
    for (const format of LOG_FORMATS) {
      const output = logging.options[format];
      if (output.splitStream) errors.push(forbidden(`${path}.options.${format}.splitStream`, disabled));
      if (output.infoBufferSize.bytes !== 0) {
        errors.push(forbidden(`${path}.options.${format}.infoBufferSize`, disabled));
      }
    }
  }
  return errors;
}
