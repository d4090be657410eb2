/**
 * Encodes a resolved configuration as v1alpha1: for `--write-config-to` (YAML, sorted keys) and `/configz` (JSON in the
 * order of the API type). Reference configuration.md §3.2–3.4, operation.md §9.2.
 *
 * The resolved configuration has no periods for inactive modes: their sections get `0s`.
 */
import {
  API_VERSION,
  type DraftConfig,
  KIND,
  type LoggingConfig,
  type LogOutput,
} from "../../contract/config/config.ts";
import type { PlainObject } from "../../contract/config/document-fields.ts";
import * as sections from "../../contract/config/v1alpha1-document.ts";
import type { WrittenPeriods } from "../../contract/dataplane.ts";
import { attempt } from "../../logging/attempt.ts";
import { MODES, sectionNameOf } from "../../modes/registry.ts";
import { durationFromMs, formatMs } from "../../text/duration.ts";
import { ownerOf } from "./defaults.ts";

const NO_PERIODS: WrittenPeriods = { syncPeriod: "0s", minSyncPeriod: "0s" };

/** The configuration as a v1alpha1 object with its members in the order of the API type. */
export function toV1Alpha1(config: DraftConfig): PlainObject {
  const { featureGates, detectLocalMode, nodePortAddresses, oomScoreAdj, configSyncPeriod, ...general } =
    sections.GENERAL.encode(config);
  const connections = sections.CONNECTIONS.encodeSet(config.connections);
  const balancing = sections.BALANCING.encodeSet(config.balancing);
  return {
    kind: KIND,
    apiVersion: API_VERSION,
    ...(Object.keys(config.featureGates).length > 0 && { featureGates }),
    clientConnection: sections.CLIENT_CONNECTION.encode(config.clientConnection),
    logging: loggingObject(config.logging),
    ...general,
    ...modeSections(config),
    detectLocalMode,
    detectLocal: sections.DETECT_LOCAL.encode(config.detectLocal),
    clusterCIDR: config.detectLocal.clusterCIDRs.join(","),
    nodePortAddresses,
    oomScoreAdj,
    conntrack: sections.CONNTRACK.encode(config.conntrack),
    configSyncPeriod,
    ...Object.assign({}, ...MODES.map((mode) => mode.config.encodeAtTop?.(config) ?? {})),
    // Upstream does not know most of these, and does not need the others to be present.
    ...sections.SELDOM.encodeSet(config),
    ...(Object.keys(connections).length > 0 && { connections }),
    ...(Object.keys(balancing).length > 0 && { balancing }),
  };
}

/** The sections of all modes. Periods and `masqueradeAll` go into the section from which they were read. */
function modeSections(config: DraftConfig): PlainObject {
  const periods = { syncPeriod: formatMs(config.syncPeriodMs), minSyncPeriod: formatMs(config.minSyncPeriodMs) };
  const sections = MODES.map((mode) => {
    const context = {
      periods: mode === ownerOf("syncPeriod", config.mode) ? periods : NO_PERIODS,
      masqueradeAll: mode === ownerOf("masqueradeAll", config.mode) && config.masqueradeAll,
    };
    return [sectionNameOf(mode), mode.config.encode(config, context)] as const;
  });
  return Object.fromEntries(sections.flatMap(([name, section]) => (section === undefined ? [] : [[name, section]])));
}

function loggingObject(logging: LoggingConfig): PlainObject {
  return {
    format: logging.format,
    flushFrequency: logging.flushFrequencyAsText
      ? formatMs(logging.flushFrequencyMs)
      : Number(durationFromMs(logging.flushFrequencyMs)),
    verbosity: logging.verbosity,
    ...(logging.vmodule.length === 0 ? {} : { vmodule: logging.vmodule.map((item) => ({ ...item })) }),
    options: { text: outputObject(logging.options.text), json: outputObject(logging.options.json) },
  };
}

function outputObject(output: LogOutput): PlainObject {
  return { ...(output.splitStream ? { splitStream: true } : {}), infoBufferSize: output.infoBufferSize.text };
}

/**
 * The text that `--write-config-to` writes: YAML with sorted keys, quoted as upstream quotes. The YAML library is
 * loaded on the first call, because a daemon without a configuration file never needs it.
 */
export async function encodeYaml(config: DraftConfig): Promise<string> {
  const [{ Document, isScalar, parse, visit }, { upstreamTags }] = await Promise.all([
    import("yaml"),
    import("../../text/upstream-yaml.ts"),
  ]);
  const plain = { version: "1.1", logLevel: "silent" } as const;
  // Go parses some numbers that YAML 1.1 does not know, and leaves some YAML 1.1 numbers as text.
  const readings = [plain, { ...plain, customTags: upstreamTags }];
  const document = new Document(toV1Alpha1(config), {
    version: "1.1",
    sortMapEntries: true,
    aliasDuplicateObjects: false,
  });
  visit(document, {
    Scalar(_, node) {
      if (!isScalar<string>(node) || typeof node.value !== "string") return;
      const { value } = node;
      if (readings.some((options) => readsAsOtherType(value, (text) => parse(text, options)))) {
        node.type = "QUOTE_DOUBLE";
      }
    },
  });
  // Text that cannot be plain gets single quotes, text that would be read as another type double ones.
  return document.toString({ indentSeq: false, lineWidth: 0, singleQuote: true, directives: false });
}

function readsAsOtherType(text: string, parse: (text: string) => unknown): boolean {
  if (text === "") return true;
  if (/\s/.test(text)) return false;
  return attempt(() => !["string", "object"].includes(typeof parse(text)) || parse(text) === null) ?? false;
}
