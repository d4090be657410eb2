/** The `exec` section of a kubeconfig user. */
import { isAbsolute, resolve } from "node:path";
import { isAbsent, type JsonObject, listField, objectField, stringField } from "../../projection/fields.ts";
import { type Findings, refuse } from "../../projection/findings.ts";
import type { ExecPlugin } from "../connection/client-config.ts";

const API_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"] as const;
const INTERACTIVE_MODES = ["Never", "IfAvailable", "Always"];

/**
 * Reads the section; problems go to `found`. Pure.
 *
 * @param folder of the kubeconfig: a command that has a slash and is relative is meant from there.
 */
export function readExecPlugin(found: Findings, folder: string, exec: JsonObject, where: string): ExecPlugin {
  const field = (name: string): string => `${where}: exec.${name}`;
  const version = stringField(found, exec.apiVersion, field("apiVersion"));
  const apiVersion = API_VERSIONS.find((known) => known === version);
  if (apiVersion === undefined) refuse(found, field("apiVersion"), `must be ${API_VERSIONS.join(" or ")}`, version);
  const command = stringField(found, exec.command, field("command"));
  if (command === "") refuse(found, field("command"), "must name the program to run", exec.command);
  const mode = stringField(found, exec.interactiveMode, field("interactiveMode"));
  if (mode === "Always") refuse(found, field("interactiveMode"), "must not be Always: there is no terminal here", mode);
  else if (mode === "" ? apiVersion === API_VERSIONS[0] : !INTERACTIVE_MODES.includes(mode)) {
    refuse(found, field("interactiveMode"), "must be Never or IfAvailable", exec.interactiveMode);
  }
  return {
    apiVersion: apiVersion ?? API_VERSIONS[0],
    command: command.includes("/") && !isAbsolute(command) ? resolve(folder, command) : command,
    args: listField(found, exec.args, field("args")).map((arg, index) =>
      stringField(found, arg, field(`args[${index}]`)),
    ),
    env: readEnv(found, exec.env, field("env")),
    installHint: stringField(found, exec.installHint, field("installHint")),
    provideClusterInfo: !isAbsent(exec.provideClusterInfo) && exec.provideClusterInfo === true,
  };
}

function readEnv(found: Findings, value: unknown, field: string): Readonly<Record<string, string>> {
  const env: Record<string, string> = {};
  for (const [index, item] of listField(found, value, field).entries()) {
    const entry = objectField(found, item, `${field}[${index}]`);
    const name = stringField(found, entry.name, `${field}[${index}].name`);
    if (name === "") refuse(found, `${field}[${index}].name`, "must be there", entry.name);
    else env[name] = stringField(found, entry.value, `${field}[${index}].value`);
  }
  return env;
}
