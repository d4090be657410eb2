/** Configuration, kubeconfig and logs, as files have them, without their secrets. */
import { open, readFile } from "node:fs/promises";
import { basename } from "node:path";
import { messageOf } from "../../logging/message-of.ts";
import { PartError, type SysdumpPart } from "./part.ts";
import { redacted, withoutSecrets } from "./redact.ts";

/** The end of a log is what tells. */
const LOG_BYTES = 4 * 1024 * 1024;

/** @param config path of the KubeProxyConfiguration. @param kubeconfig path; default: what the configuration says. */
export function settingsParts(config: string | undefined, kubeconfig: string | undefined): readonly SysdumpPart[] {
  return [
    {
      name: "config/kube-proxy.json",
      read: async () => jsonOf(redacted(await documentIn(config, "no --config was given"))),
    },
    {
      name: "config/kubeconfig.json",
      read: async () =>
        jsonOf(redacted(await documentIn(kubeconfig ?? (await kubeconfigOf(config)), "no kubeconfig was given"))),
    },
  ];
}

/** @param paths of log files; their ends. */
export function logParts(paths: readonly string[]): readonly SysdumpPart[] {
  return paths.map((path, index) => ({
    name: `logs/${index + 1}-${basename(path)
      .replaceAll(/[^\w.-]/g, "_")
      .slice(-60)}`,
    read: async () => withoutSecrets(await endOf(path)),
  }));
}

async function documentIn(path: string | undefined, unless: string): Promise<unknown> {
  if (path === undefined || path === "") throw new PartError(unless);
  const { parse } = await import("yaml");
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    throw new PartError(messageOf(error));
  }
  try {
    return parse(text);
  } catch {
    // The parser's message has the line in it.
    throw new PartError(`${path} is no YAML`);
  }
}

async function kubeconfigOf(config: string | undefined): Promise<string | undefined> {
  if (config === undefined) return undefined;
  const document = await documentIn(config, "");
  const connection = fieldOf(document, "clientConnection");
  const path = fieldOf(connection, "kubeconfig");
  return typeof path === "string" ? path : undefined;
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
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
  // Half of a line may have half of a secret, which has no shape.
  return start === 0 ? text : text.slice(text.indexOf("\n") + 1);
}
