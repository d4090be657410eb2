/** What the commands that look at a node have in common: flags, and reading the configuration. */
import { stat } from "node:fs/promises";
import type { DraftConfig, KubeProxyConfig } from "../../contract/config/config.ts";
import { releaseNames } from "../../contract/config/release.ts";
import { withAssumedNetworks } from "../../contract/inspect/assumed-networks.ts";
import { KERNEL_FEATURES, type KernelFeature } from "../../contract/rendering.ts";
import { PlanError } from "../../lib/plan-error.ts";
import { checkedSettings } from "../../lib/plan-settings.ts";
import { escapeLine } from "../../logging/escape.ts";
import { isProxyMode, MODES, type ProxyMode } from "../../modes/registry.ts";
import type { IpFamily } from "../../net/ip.ts";
import type { Objects } from "../explain/part-of-cluster.ts";
import { isStandardInput, readBounded, refusalText } from "./bounded-input.ts";
import type { FoundConfiguration } from "./objects-input.ts";
import { type Output, UsageError } from "./output.ts";
import type { OptionValues } from "./subcommand-options.ts";
import { didYouMean } from "./suggestion.ts";

/** Said after differences that a missing configuration may explain. */
export const BARE =
  "The node's configuration is not known (--config): clusterCIDR or another setting may be the reason.\n";

/** Options of every command that looks at a node and its configuration. */
export const INSPECT_OPTIONS = {
  "--node NAME": "the node to look from (default: the only Node, this host, or the first by name)",
  "--hostname-override NAME": "",
  "--mode MODE": `${MODES.map(({ name }) => name).join(", ")} (default: the configuration's mode)`,
  "--family ipv4|ipv6|both": "address family (default both)",
  "--config FILE": "the node's KubeProxyConfiguration (default: the cluster's or the sysdump's)",
  "--compatibility RELEASE": `whose rules: ${releaseNames()} (default: the configuration's)`,
};

type Adjust = (draft: DraftConfig) => DraftConfig;

export interface InspectChoices {
  readonly families: readonly IpFamily[];
  readonly config: KubeProxyConfig;
  /** {@link originOf} */
  readonly origin: string | undefined;
  /** No configuration is known. */
  readonly isBare: boolean;
  /** What does not count in the file of `--config`. */
  readonly warnings: readonly string[];
}

const FAMILIES: Readonly<Record<string, readonly IpFamily[]>> = {
  ipv4: ["IPv4"],
  ipv6: ["IPv6"],
  both: ["IPv4", "IPv6"],
};

type InspectValues = Partial<OptionValues<typeof INSPECT_OPTIONS>>;

/**
 * @param found replaces `--config` if that is not given.
 * @param adjust applies further flags to the configuration.
 * @throws UsageError
 */
export async function readChoices(
  values: InspectValues,
  found?: FoundConfiguration,
  adjust: Adjust = (draft) => draft,
): Promise<InspectChoices> {
  const { config: file, mode, compatibility, family = "both" } = values;
  const word = family.toLowerCase();
  const families = Object.hasOwn(FAMILIES, word) ? FAMILIES[word] : undefined;
  if (families === undefined) throw new UsageError(`--family must be ipv4, ipv6 or both, got "${family}"`);
  if (mode !== undefined && mode !== "") requireMode("--mode", mode);
  const given = file === undefined ? found : { content: await readConfig(file), where: file };
  const { config, warnings } = await checkedSettings({
    config: given?.content,
    mode,
    node: values.node ?? values["hostname-override"],
    adjust: (draft) => ({ ...adjust(draft), ...(compatibility !== undefined && { compatibility }) }),
  }).catch((error: unknown) => {
    if (!(error instanceof PlanError)) throw error;
    if (error.code !== "config-decode") throw new UsageError(error.message);
    const isOther = /no kind|couldn't get version|is missing in/.test(error.message);
    const hint = isOther ? "It must be a KubeProxyConfiguration, or the ConfigMap that holds one." : undefined;
    throw new UsageError(`cannot use the configuration ${given?.where}: ${error.message}`, hint);
  });
  return {
    families,
    config,
    warnings: file === undefined ? [] : warnings.map((said) => `${file} is read leniently: ${said}`),
    origin: originOf(values, found),
    isBare: given === undefined,
  };
}

/** The choices for these objects: without a configuration, with the pods' networks that the objects suggest. */
export function choicesAmong(objects: Objects, choices: InspectChoices): InspectChoices {
  if (!choices.isBare) return choices;
  const { config, words } = withAssumedNetworks(objects, choices.config, choices.families);
  return {
    ...choices,
    config,
    origin: [choices.origin ?? "", words].filter((part) => part !== "").join("; ") || undefined,
  };
}

/** Where mode and configuration come from, as shown after the mode's name; undefined: both were given. */
function originOf(
  { config, mode }: Pick<InspectValues, "config" | "mode">,
  found: FoundConfiguration | undefined,
): string | undefined {
  if (config !== undefined) return undefined;
  if (found !== undefined) return mode === undefined ? `of ${found.where}` : undefined;
  return mode === undefined ? ASSUMED : undefined;
}

/** The origin if there is no configuration anywhere. */
const ASSUMED = "assumed";

/** Warns if a mode is assumed, and this host's kernel has kube-proxy's rules of another one. @returns whether it warned */
export async function warnOfOtherMode(choices: InspectChoices, warn: (message: string) => void): Promise<boolean> {
  const { config, origin } = choices;
  if (origin?.startsWith(ASSUMED) !== true) return false;
  const mode = (await rulesHere(choices))?.shown?.mode;
  if (mode === undefined || mode === config.mode) return false;
  warn(`this kernel has kube-proxy's rules of ${mode} mode, and ${config.mode} mode is assumed: give --mode ${mode}`);
  return true;
}

/** Why this host's kernel seems to have no rules of kube-proxy; undefined if it has some, or may not be read. */
export async function lackOfRules(choices: InspectChoices): Promise<string | undefined> {
  const here = await rulesHere(choices);
  if (here === undefined || here.shown !== undefined) return undefined;
  const lack = "this network namespace has no rules of kube-proxy";
  return here.unread.length === 0 ? lack : `${lack} as far as it could be read (${here.unread.join("; ")})`;
}

type RulesHere = Awaited<ReturnType<typeof import("./prove-rules.ts").shownInKernel>>;

/** Read once for a command. */
const rulesRead = new WeakMap<InspectChoices, Promise<RulesHere | undefined>>();

/** What this host's kernel shows; undefined if it may not be read: a hint must not fail the command. */
async function rulesHere(choices: InspectChoices): Promise<RulesHere | undefined> {
  const read = async () => await (await import("./prove-rules.ts")).shownInKernel(choices.families);
  const found = rulesRead.get(choices) ?? read().catch(() => undefined);
  rulesRead.set(choices, found);
  return await found;
}

/**
 * The check of a configuration names upstream's modes for this platform, as upstream does; these commands take all modes anywhere.
 *
 * @throws UsageError for a text that is not a mode.
 */
export function requireMode(flag: string, mode: string): asserts mode is ProxyMode {
  if (isProxyMode(mode)) return;
  const names = MODES.map(({ name }) => name);
  throw new UsageError(`${flag} must be ${names.join(", ")}, got "${mode}"`, didYouMean(mode, names));
}

/** What pipes held: they can be read only once, and a command looks at its configuration several times. */
const piped = new Map<string, Uint8Array>();

async function readConfig(file: string): Promise<Uint8Array> {
  try {
    const known = piped.get(file);
    if (known !== undefined) return known;
    const isFile = !isStandardInput(file) && (await stat(file)).isFile();
    const content = await readBounded(file);
    if (!isFile) piped.set(file, content);
    return content;
  } catch (error) {
    const hint = "Give the file, for example /var/lib/kube-proxy/config.conf.";
    throw new UsageError(`cannot use the configuration ${file}: ${refusalText(error)}`, hint);
  }
}

/** Prints each warning once. @param lacksNodes whether that was said of all Nodes. @param first those that are known already */
export function warner(output: Output, lacksNodes = false, first: readonly string[] = []): (message: string) => void {
  const told = new Set<string>();
  const warn = (message: string) => {
    if (lacksNodes && message.startsWith("no Node ")) return;
    if (!told.has(message)) output.err(`warning: ${escapeLine(message)}\n`);
    told.add(message);
  };
  for (const message of first) warn(message);
  return warn;
}

/** Reads a comma-separated list; empty words do not count. @throws UsageError for a word that is not a feature. */
export function readMissing(list = ""): ReadonlySet<KernelFeature> {
  const words = list.split(",").filter((word) => word !== "");
  return new Set(
    words.map((word) => {
      const feature = KERNEL_FEATURES.find((name) => name === word);
      if (feature !== undefined) return feature;
      throw new UsageError(`--without knows ${KERNEL_FEATURES.join(" and ")}, got "${word}"`);
    }),
  );
}
