/**
 * From the flags of a run to a resolved configuration: configuration file or flags, overrides of the file, platform
 * defaults, node name, feature gates. Reference start.md §1 step 5, §2.3–2.5.
 */

import { applyPlatformDefaults, EMPTY_DOCUMENT, periodsOf, resolveDocument } from "../../../agent/settings/defaults.ts";
import { checkConfig, IS_VARIABLE, loggingErrors } from "../../../agent/settings/validate.ts";
import { appendPortIfNeeded } from "../../../contract/config/bind-address.ts";
import type { DraftConfig, KubeProxyConfig } from "../../../contract/config/config.ts";
import { type FeatureGates, setFeatureGates } from "../../../contract/config/feature-gates.ts";
import type { AnyFlag } from "../../../contract/config/flag.ts";
import { type Release, releaseOf } from "../../../contract/config/release.ts";
import { messageOf } from "../../../logging/message-of.ts";
import { defaultModeOn, MODES } from "../../../modes/registry.ts";
import { joinErrors } from "../../../text/go-text.ts";
import { CommandError } from "../output.ts";
import type { FlagValues, ValuesOf } from "./command-line.ts";
import { ACTIONS, HELP, HOSTNAME_OVERRIDE, LOG_FILE, VERSION, WINDOWS_SERVICE } from "./process.ts";
import { FLAGS, HEALTHZ_PORT_FLAG, LOGGING_FLAGS, METRICS_PORT_FLAG, minSyncPeriodFlag, PROXY_MODE } from "./table.ts";

/** A line to log later: logging depends on the configuration, which is not complete yet. */
interface Notice {
  readonly level: "info" | "warning";
  readonly message: string;
  readonly facts: Readonly<Record<string, unknown>>;
}

export interface CompletedOptions {
  /** Resolved but unchecked: see {@link requireLogging} and {@link requireConfig}. */
  readonly config: DraftConfig;
  readonly gates: FeatureGates;
  readonly actions: ValuesOf<typeof ACTIONS>;
  /** Whether the user chose `minSyncPeriod`; otherwise a mode may have a better default than upstream's. */
  readonly isMinSyncPeriodSet: boolean;
  /** False if the system's default mode applies and that default will change. */
  readonly isModeSet: boolean;
  /** Every flag and its value as text, sorted by name: for `/flagz`, and logged as `FLAG: --name="value"` at `-v=1`. */
  readonly flagSnapshot: readonly (readonly [name: string, value: string])[];
  readonly notices: readonly Notice[];
}

/** Reads a text file; rejects with an error that has a `code` like those of `node:fs`. */
type ReadFile = (path: string) => Promise<string | Uint8Array>;

/**
 * Completes the options of a run.
 *
 * @throws {@link CommandError} `failed complete: …` for an unreadable or undecodable file, an empty host name
 * override, or an unknown or locked feature gate.
 */
export async function completeOptions(flags: FlagValues, readFile: ReadFile): Promise<CompletedOptions> {
  const notices: Notice[] = [];
  const actions = Object.fromEntries(
    Object.entries(ACTIONS).map(([name, flag]) => [name, flags.get<string | boolean>(flag)]),
  ) as ValuesOf<typeof ACTIONS>; // by the same names
  const { configFile } = actions;
  const { config: merged, isMinSyncPeriodSet } =
    configFile === "" ? configFromFlags(flags) : await configFromFile(configFile, flags, readFile, notices);
  const modeNotices = merged.mode === "" ? defaultModeNotices(releaseOf(merged)) : [];
  notices.push(...modeNotices);
  const config = overrideHostname(applyPlatformDefaults(merged), flags);
  if (IS_VARIABLE.test(config.hostnameOverride)) {
    const message =
      "The node's name is a variable that nothing has replaced: no Node has it, and policies Local find no endpoint here";
    notices.push({ level: "warning", message, facts: { hostnameOverride: config.hostnameOverride } });
  }
  const gates = setFeatureGates(config.featureGates, releaseOf(config));
  if (!gates.ok) throw new CommandError(`failed complete: ${gates.error}`);
  notices.push(
    ...gates.notices.map(({ message, facts }): Notice => ({ level: "warning", message, facts: { ...facts } })),
  );
  return {
    config,
    gates: gates.gates,
    actions,
    isMinSyncPeriodSet,
    isModeSet: !modeNotices.some(({ level }) => level === "warning"),
    flagSnapshot: snapshot(flags, configFile === "" ? config : undefined),
    notices,
  };
}

function defaultModeNotices(release: Release, platform = process.platform): readonly Notice[] {
  const { name } = defaultModeOn(platform);
  const using: Notice = { level: "info", message: `Using ${name} proxy`, facts: {} };
  if (platform === "win32" || !release.warnsOfDefaultMode) return [using];
  const message = `The proxy mode is not set. It is ${name} now and is to be nftables from Kubernetes v1.40 on: set mode (--proxy-mode) to the one that is meant`;
  return [using, { level: "warning", message, facts: {} }];
}

/** The early check of the logging section. @throws {@link CommandError} `initialize logging: …`. */
export function requireLogging({ config, gates }: CompletedOptions): void {
  const errors = loggingErrors(config.logging, gates, "logging");
  if (errors.length > 0) throw new CommandError(`initialize logging: ${joinErrors(errors)}`);
}

/** @throws {@link CommandError} `failed validate: …`. */
export function requireConfig({ config }: CompletedOptions): KubeProxyConfig {
  const checked = checkConfig(config);
  if (!checked.ok) throw new CommandError(`failed validate: ${checked.message}`);
  return checked.config;
}

interface Merged {
  readonly config: DraftConfig;
  readonly isMinSyncPeriodSet: boolean;
}

function configFromFlags(flags: FlagValues): Merged {
  // The mode first: it decides which period flags count.
  const ordered = [PROXY_MODE, ...FLAGS.filter((flag) => flag !== PROXY_MODE)];
  const config = ordered
    .filter((flag) => flags.isGiven(flag))
    .reduce((draft, flag) => flag.overlay(draft, flags.textsOf(flag)), resolveDocument(EMPTY_DOCUMENT));
  const periodFlag = minSyncPeriodFlag(config.mode);
  const isMinSyncPeriodSet = periodFlag !== undefined && flags.isGiven(periodFlag);
  if (flags.get(ACTIONS.writeConfigTo) !== "") return { config, isMinSyncPeriodSet };
  const healthzBindAddress = withDeprecatedPort(config.healthzBindAddress, flags.get(HEALTHZ_PORT_FLAG));
  const metricsBindAddress = withDeprecatedPort(config.metricsBindAddress, flags.get(METRICS_PORT_FLAG));
  return { config: { ...config, healthzBindAddress, metricsBindAddress }, isMinSyncPeriodSet };
}

function withDeprecatedPort(address: string, port: number): string {
  return port === 0 ? "" : appendPortIfNeeded(address, port);
}

/** What counts beside a configuration file (reference start.md §2.3). */
const COUNTING: ReadonlySet<AnyFlag> = new Set<AnyFlag>([
  ...[...Object.values(ACTIONS), ...LOGGING_FLAGS],
  ...[HELP, HOSTNAME_OVERRIDE, LOG_FILE, VERSION, WINDOWS_SERVICE],
]);

async function configFromFile(path: string, flags: FlagValues, readFile: ReadFile, notices: Notice[]): Promise<Merged> {
  const { ConfigDecodeError, decodeConfiguration } = await import("../../../agent/settings/v1alpha1-decode.ts");
  const content = await readContent(path, readFile);
  try {
    const { document, strictError } = decodeConfiguration(content);
    if (strictError !== undefined) {
      const message = "Using lenient decoding as strict decoding failed";
      notices.push({ level: "info", message, facts: { err: strictError } });
    }
    const idle = FLAGS.filter((flag) => flags.isGiven(flag) && !COUNTING.has(flag)).map(({ name }) => `--${name}`);
    if (idle.length > 0) {
      const message = "Flags without effect beside --config: set their fields in the file instead";
      notices.push({ level: "warning", message, facts: { flags: idle, file: path } });
    }
    for (const { config } of MODES) {
      const message = config.notice?.(document);
      if (message !== undefined) notices.push({ level: "warning", message, facts: {} });
    }
    const config = LOGGING_FLAGS.filter((flag) => flags.isGiven(flag)).reduce(
      (draft, flag) => flag.overlay(draft, flags.textsOf(flag)),
      resolveDocument(document),
    );
    return { config, isMinSyncPeriodSet: periodsOf(document).minSyncPeriod !== 0n };
  } catch (error) {
    if (error instanceof ConfigDecodeError) {
      throw new CommandError(`failed complete: ${error.message}`, { cause: error });
    }
    throw error;
  }
}

/** The texts of Go's file errors, which operators search for. */
const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  EACCES: "permission denied",
  ENOTDIR: "not a directory",
  ELOOP: "too many levels of symbolic links",
};

async function readContent(path: string, readFile: ReadFile): Promise<string | Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const known = FILE_ERRORS[code];
    const reason = messageOf(error);
    const text = code === "EISDIR" ? `read ${path}: is a directory` : `open ${path}: ${known ?? reason}`;
    throw new CommandError(`failed complete: ${text}`, { cause: error });
  }
}

function overrideHostname(config: DraftConfig, flags: FlagValues): DraftConfig {
  const override = flags.get(HOSTNAME_OVERRIDE);
  if (override === "") return config;
  const name = override.trim().toLowerCase();
  if (name === "") throw new CommandError("failed complete: empty hostname-override is invalid");
  return { ...config, hostnameOverride: name };
}

/** Without a file, flags and configuration share their fields upstream, so defaults applied later show up in the flags too. */
function snapshot(flags: FlagValues, shared: DraftConfig | undefined): readonly (readonly [string, string])[] {
  const resolved = new Map<string, string>(
    shared === undefined
      ? []
      : [
          ["proxy-mode", shared.mode],
          ["detect-local-mode", shared.detectLocalMode],
          ["nodeport-addresses", `[${shared.nodePortAddresses.join(",")}]`],
          ["healthz-bind-address", shared.healthzBindAddress],
          ["metrics-bind-address", shared.metricsBindAddress],
        ],
  );
  return FLAGS.map((flag) => [flag.name, resolved.get(flag.name) ?? flag.shown(flags.textsOf(flag))] as const);
}
