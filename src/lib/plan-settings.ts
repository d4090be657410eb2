/** The settings of a plan: a checked configuration, made from a file's content and its overrides. */

import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../agent/settings/defaults.ts";
import { checkConfig, IS_VARIABLE } from "../agent/settings/validate.ts";
import { API_VERSION, type DraftConfig, KIND, type KubeProxyConfig } from "../contract/config/config.ts";
import { invalidInput, messageOf } from "./cluster.ts";
import { PlanError } from "./plan-error.ts";

export interface PlanSettings {
  /** A KubeProxyConfiguration: a file's text or bytes, or an object, in which `apiVersion` and `kind` may be left out. */
  readonly config?: string | Uint8Array | object | undefined;
  /** Overrides the configuration's. */
  readonly mode?: string | undefined;
  /** Overrides the configuration's `hostnameOverride`. */
  readonly node?: string | undefined;
  /** Applies a command's flags before the configuration is checked. */
  readonly adjust?: ((draft: DraftConfig) => DraftConfig) | undefined;
}

export interface CheckedSettings {
  readonly config: KubeProxyConfig;
  /** Unknown and duplicate fields, which are ignored, in kube-proxy's words. */
  readonly warnings: readonly string[];
}

/** @throws PlanError `config-decode`, `config-invalid` */
export async function checkedSettings({
  config,
  mode,
  node,
  adjust = (draft) => draft,
}: PlanSettings): Promise<CheckedSettings> {
  if (node !== undefined && typeof node !== "string") throw invalidInput("node", node, "the name of a node");
  if (mode !== undefined && typeof mode !== "string") throw invalidInput("mode", mode, "the name of a mode");
  if (config !== undefined && !isConfiguration(config))
    throw invalidInput("config", config, "a KubeProxyConfiguration: a text, bytes or an object");
  const { document, strictError } =
    config === undefined ? { document: EMPTY_DOCUMENT, strictError: undefined } : await decoded(config);
  const draft = adjust(applyPlatformDefaults(resolveDocument(mode === undefined ? document : { ...document, mode })));
  const checked = checkConfig(node === undefined || node === "" ? draft : { ...draft, hostnameOverride: node });
  if (!checked.ok) throw new PlanError("config-invalid", `the configuration cannot be used: ${checked.message}`);
  const { hostnameOverride } = checked.config;
  if (IS_VARIABLE.test(hostnameOverride)) {
    throw new PlanError(
      "config-invalid",
      `the name of the node, ${hostnameOverride}, is a variable that nothing has replaced: give the name itself`,
    );
  }
  if (hostnameOverride !== "" && hostnameOverride.trim() === "") {
    throw new PlanError(
      "config-invalid",
      "the name of the node (hostnameOverride) is blank: leave it out, or give one",
    );
  }
  return { config: checked.config, warnings: strictError === undefined ? [] : [strictError] };
}

/** A promise that was not awaited would count as an object in which nothing is set. */
function isConfiguration(config: unknown): boolean {
  if (typeof config === "string") return true;
  return typeof config === "object" && config !== null && !Array.isArray(config) && !("then" in config);
}

async function decoded(config: string | Uint8Array | object) {
  // The YAML parser costs memory: load it only if there is a configuration.
  const { decodeConfiguration } = await import("../agent/settings/v1alpha1-decode.ts");
  const isText = typeof config === "string" || config instanceof Uint8Array;
  try {
    return decodeConfiguration(isText ? config : JSON.stringify({ apiVersion: API_VERSION, kind: KIND, ...config }));
  } catch (error) {
    throw new PlanError("config-decode", messageOf(error), { cause: error });
  }
}
