/** Configuration, kubeconfig and logs from files, without secrets. */
import { open, readFile } from "node:fs/promises";
import { basename } from "node:path";
import { readConfiguration } from "../../../agent/settings/v1alpha1-decode.ts";
import { splitHostPort } from "../../../contract/config/bind-address.ts";
import { isObject, textOf } from "../../../kernel/nftables/json.ts";
import { withoutSecrets } from "../../../logging/secrets.ts";
import { isUnspecified, parseIpAddress } from "../../../net/ip.ts";
import { configTextOf } from "../../../text/decode-text.ts";
import { type ConfigText, readConfigText } from "../../../text/upstream-yaml.ts";
import { refusalText } from "../bounded-input.ts";
import { readChoices } from "../inspect-options.ts";
import { UsageError } from "../output.ts";
import { PartError, type SysdumpPart } from "./archive.ts";
import { redacted } from "./redact.ts";

/** Only the end of a log matters. */
const LOG_BYTES = 4 * 1024 * 1024;

/** @param config path of the KubeProxyConfiguration. @param kubeconfig path. @default the configuration's */
export function settingsParts(config: string | undefined, kubeconfig: string | undefined): readonly SysdumpPart[] {
  return [
    {
      name: "config/kube-proxy.json",
      read: async () => jsonOf(redacted(await documentIn(config, "no --config was given", readConfiguration))),
    },
    {
      name: "config/kubeconfig.json",
      read: async () =>
        jsonOf(redacted(await documentIn(kubeconfig ?? (await kubeconfigOf(config)), "no kubeconfig was given"))),
    },
  ];
}

/** The ends of log files. @param paths of the files */
export function logParts(paths: readonly string[]): readonly SysdumpPart[] {
  return paths.map((path, index) => ({
    name: `logs/${index + 1}-${basename(path)
      .replaceAll(/[^\w.-]/g, "_")
      .slice(-60)}`,
    read: async () => withoutSecrets(await endOf(path)),
  }));
}

async function documentIn(
  path: string | undefined,
  unless: string,
  read: (file: Uint8Array) => ConfigText = (file) => readConfigText(configTextOf(file)),
): Promise<unknown> {
  if (path === undefined || path === "") throw new PartError(unless);
  const bytes = await readFile(path).catch((error: unknown) => {
    throw new PartError(`${path}: ${refusalText(error)}`);
  });
  try {
    return read(bytes).root;
  } catch {
    // Without the parser's message, which quotes the line.
    throw new PartError(`${path} is not YAML`);
  }
}

async function kubeconfigOf(config: string | undefined): Promise<string | undefined> {
  if (config === undefined) return undefined;
  const document = await documentIn(config, "", readConfiguration);
  const connection = isObject(document) ? document.clientConnection : undefined;
  return isObject(connection) ? textOf(connection.kubeconfig) : undefined;
}

function jsonOf(value: unknown): string {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

async function endOf(path: string): Promise<string> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  const start = Math.max(0, size - LOG_BYTES);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(size, LOG_BYTES)), 0, undefined, start);
  const text = buffer.toString("utf8", 0, bytesRead);
  // Half a line may contain half a secret, which has no recognisable form.
  return start === 0 ? text : text.slice(text.indexOf("\n") + 1);
}

/** `HOST:PORT`; empty if the configuration disables the server. */
export interface HttpPlaces {
  readonly metrics: string;
  readonly healthz: string;
}

/** @param config path of the KubeProxyConfiguration; upstream's defaults apply without one, or if it is unusable. */
export async function httpPlaces(config: string | undefined): Promise<HttpPlaces> {
  const choices = await readChoices({ config }).catch(async (error: unknown) => {
    // The daemon hardly runs with such a file, and another part of the archive has its content.
    if (!(error instanceof UsageError) || config === undefined) throw error;
    return await readChoices({});
  });
  const { metricsBindAddress, healthzBindAddress } = choices.config;
  return { metrics: askedAt(metricsBindAddress), healthz: askedAt(healthzBindAddress) };
}

/** A server on all addresses is queried on loopback. */
function askedAt(address: string): string {
  const { host = "", port = "" } = splitHostPort(address) ?? {};
  const parsed = parseIpAddress(host);
  if (parsed === undefined || !isUnspecified(parsed)) return address;
  return `${parsed === "::" ? "[::1]" : "127.0.0.1"}:${port}`;
}
