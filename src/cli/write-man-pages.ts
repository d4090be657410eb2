/** Writes the manual pages of the program and its commands into a folder: `scripts/build.mjs` runs it for dist/man. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { programIdentity } from "../program/program-identity.ts";
import { COMMANDS } from "./commands.ts";
import { helpText } from "./flags/help.ts";
import { manPage } from "./man-page.ts";

/** The pages by their file names. */
export async function manPages(): Promise<ReadonlyMap<string, string>> {
  const { version } = programIdentity();
  const commands = COMMANDS.map(({ name }) => `kube-proxy-${name}`);
  const pages = new Map<string, string>();
  const summary = "makes the Services of a Kubernetes cluster reachable from a node and its pods";
  // The synopsis comes first in a page.
  const [about = "", ...rest] = helpText().split("\n\nUsage:\n");
  const usage = `Usage: kube-proxy [flags]\n       kube-proxy COMMAND …\n\n${about}\n\nCommands:\n${rest.join("\n\n")}`;
  pages.set("kube-proxy.1", manPage({ name: "kube-proxy", summary, usage, version, seeAlso: commands }));
  for (const { name, summary: own, load } of COMMANDS) {
    const page = { name: `kube-proxy-${name}`, summary: own, version, seeAlso: ["kube-proxy"] };
    pages.set(`kube-proxy-${name}.1`, manPage({ ...page, usage: (await load()).usage }));
  }
  return pages;
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2);
  if (folder === undefined) throw new Error("give the folder to write to");
  mkdirSync(folder, { recursive: true });
  for (const [name, page] of await manPages()) writeFileSync(join(folder, name), page);
}
